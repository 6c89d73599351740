"""The power goes, and with it all that the disk was not told to keep.

A file system that is shut down writes nothing any more, its journal neither; mounted again, it
holds what it would hold after a power cut: FS_IOC_SHUTDOWN in Linux's include/uapi/linux/fs.h.
"""

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time
from functools import partial

import pytest

SHUTDOWN, WITHOUT_JOURNAL = 0x8004587D, struct.pack("I", 2)
MAKE = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}
SIZE = 512 << 20  # sparse; xfs needs 300 MB


class Disk:
    """A file system in a file, which can lose its power."""

    def __init__(self, kind, folder):
        self.image, self.place = folder / f"{kind}.img", folder / kind
        self.place.mkdir()
        with self.image.open("wb") as file:
            file.truncate(SIZE)
        subprocess.run([*MAKE[kind], str(self.image)], check=True)
        self.mount()

    def mount(self):
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.place)], check=True)

    def unmount(self):
        """Workers of a killed process may take a moment to be gone."""
        for _ in range(200):
            result = subprocess.run(["umount", str(self.place)], capture_output=True, text=True)
            if result.returncode == 0:
                return
            time.sleep(0.05)
        raise RuntimeError(result.stderr)

    def lose_power(self):
        """From here on nothing reaches the image."""
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, WITHOUT_JOURNAL)
        finally:
            os.close(descriptor)


@pytest.fixture(params=MAKE)
def disk(request, tmp_path):
    """A disk of each kind; it takes the rights of root and the tools to make one."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    if (tool := shutil.which(MAKE[request.param][0])) is None:
        pytest.skip(f"there is no {MAKE[request.param][0]} on this machine")
    try:
        made = Disk(request.param, tmp_path)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"{tool} made a file system that cannot be mounted here: {error}")
    yield made
    made.unmount()


def cut(disk, process, chance):
    """Everything stops at once, at some moment of the run; what was not on the disk is gone."""
    if chance.random() < 0.8:
        process.wait_for(chance.randint(1, process.LENGTH))
    time.sleep(chance.uniform(0, 0.03))
    if process.process.poll() is None:
        process.kill(signal.SIGSTOP)
        disk.lose_power()
        process.kill(signal.SIGKILL)
        process.end()
        disk.unmount()
        disk.mount()
        return -signal.SIGKILL  # what it may have written at its end is lost as well
    return process.end()


def test_what_was_not_synced_is_gone_after_a_power_cut(disk):
    with (disk.place / "kept").open("w") as file:
        file.write("kept")
        file.flush()
        os.fsync(file.fileno())
    (disk.place / "lost").write_text("lost")
    disk.lose_power()
    disk.unmount()
    disk.mount()
    assert (disk.place / "kept").read_text() == "kept"
    assert not (disk.place / "lost").exists() or (disk.place / "lost").read_bytes() != b"lost"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", ["plain", "workers", "accumulated", "in the foreground"])
def test_power_cuts_lose_next_to_nothing_and_change_nothing(tally, tmp_path, disk, case):
    runs = tally(case, disk.place, seed=4, told=tmp_path / "told")
    runs.kill_until(20, partial(cut, disk))

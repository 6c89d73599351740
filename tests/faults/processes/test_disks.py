"""A disk that becomes read-only, is full for a while, or is slow: nothing reported is lost."""

import json
import os
import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.checkpoint.directory import verify_files

OPTIONS = ("--logs", "--save-every", 1, "--validate-every", 2, "--retries", 0)
SLOWLY = ("--delay", 0.05)


@contextmanager
def mounted(place, *arguments):
    """A file system at a place; it takes the rights of root and a kernel that has it."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    place.mkdir(exist_ok=True)
    made = subprocess.run(["mount", *map(str, arguments), str(place)], capture_output=True)
    if made.returncode:
        pytest.skip(f"this file system cannot be mounted here: {made.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def trigger_of(place):
    """The file by which the kernel takes an error of this ext4 file system for granted."""
    source = subprocess.run(
        ["findmnt", "-n", "-o", "SOURCE", str(place)], capture_output=True, text=True
    ).stdout.strip()
    trigger = Path("/sys/fs/ext4", Path(source).name, "trigger_fs_error")
    if not trigger.exists():
        pytest.skip("this kernel cannot be told that a file system has an error")
    return trigger


@pytest.mark.slow
def test_a_disk_that_the_kernel_makes_read_only_ends_the_run_which_goes_on_exactly(run, tmp_path):
    """So does the kernel with a disk that has an error: open files are read-only at once, too."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("there is no mkfs.ext4 on this machine")
    expected = run(tmp_path / "whole", *OPTIONS).result()
    image, told = tmp_path / "image", tmp_path / "told"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    with mounted(tmp_path / "disk", "-o", "loop,errors=remount-ro", image) as disk:
        process = run(disk / "run", *OPTIONS, *SLOWLY, told=told)
        process.wait_for(7)
        trigger_of(disk).write_text("1")
        with process.process as ended:
            said = ended.result()
        assert said.returncode == 1
        assert "Read-only file system" in said.stderr
        assert f"could not write the checkpoint {disk / 'run'}" in said.stderr
        reached, durable = process.reached, process.newest
        assert durable >= reached - 2
        verify_files(checkpoints(disk / "run").latest())
    with mounted(tmp_path / "disk", "-o", "loop", image) as disk:
        assert run(disk / "run", "--seed", 3, *OPTIONS, told=told).result() == expected


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["raise", "warn"])
def test_a_disk_that_is_full_for_a_while_loses_nothing(run, tmp_path, policy):
    expected = run(tmp_path / "whole", *OPTIONS).result()
    told = tmp_path / "told"
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=4m", "tmpfs") as disk:
        process = run(disk / "run", *OPTIONS, *SLOWLY, "--on-failure", policy, told=told)
        process.wait_for(7)
        fill(disk / "other")
        process.wait_for(11)
        if policy == "warn":
            (disk / "other").unlink()
        with process.process as ended:
            said = ended.result()
        assert "No space left on device" in said.stderr
        if policy == "warn":
            assert "the run goes on without it" in said.stderr
            outcome = json.loads((disk / "run" / "result.json").read_text())
        else:
            assert said.returncode == 1
            assert process.newest >= process.reached - 2
            (disk / "other").unlink()
            outcome = run(disk / "run", "--seed", 3, *OPTIONS, told=told).result()
        assert outcome == expected
        verify_files(checkpoints(disk / "run").latest())
        assert not [each for each in (disk / "run").iterdir() if each.name.startswith(".")]


def fill(path):
    """Take all space that is left."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


@pytest.mark.soak
def test_killed_on_a_slow_disk_no_save_that_was_waited_for_is_lost(run, machine, tmp_path):
    """An fsync takes 50 ms more, so the run is mostly within a save, or waits for one.

    A library that the process loads stands in for the disk: where there is no device mapper or
    FUSE, the kernel has no slow one.
    """
    expected = run(tmp_path / "whole", *OPTIONS, **machine()).result()
    durable, directory = 0, tmp_path / "slow"
    for seed, stop in enumerate([5, 11]):
        process = run(directory, "--seed", seed, *OPTIONS, **machine(SLOW_DISK=50))
        process.wait_for(stop)
        process.kill(signal.SIGKILL)
        process.end()
        assert process.newest >= max(durable, process.reached - 2)
        durable = process.newest
    assert run(directory, "--seed", 9, *OPTIONS, **machine(SLOW_DISK=5)).result() == expected

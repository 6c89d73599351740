"""Two hosts on one machine: a network namespace, a host name and a mount table each.

What is shared between the hosts is a folder, as a network file system would be.
"""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "ranks/train.py"
PORT = 29_400


class Host:
    """One of two machines."""

    def __init__(self, number, label, names):
        self.names = names
        self.space = f"{label}{number}"
        self.name = f"{'ab'[number]}-host"
        self.address = f"10.77.0.{number + 1}"

    def start(self, *command, env=(), setup="true"):
        """Start a command there, in a group of its own."""
        named = f"hostname {self.name} && mount --bind {self.names} /etc/hosts"
        inside = ["sh", "-c", f'{named} && {setup} && exec "$@"', "sh"]
        place = ["ip", "netns", "exec", self.space, "unshare", "--uts", "--mount"]
        return subprocess.Popen(
            [*place, *inside, *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "GLOO_SOCKET_IFNAME": f"{self.space}v", **dict(env)},
        )


class Hosts(list):
    """Both; what was started on them is ended with them."""

    script = SCRIPT

    def __init__(self, directory):
        label, names = f"cam{os.getpid() % 10_000}", directory / "hosts"
        super().__init__(Host(number, label, names) for number in (0, 1))
        lines = [f"{host.address} {host.name}" for host in self]
        names.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        self.started = []

    def open(self):
        """Make them, and a network between them."""
        for host in self:
            ip("netns", "add", host.space)
        ends = [("name", f"{host.space}v", "netns", host.space) for host in self]
        ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for host in self:
            ip("-n", host.space, "addr", "add", f"{host.address}/24", "dev", f"{host.space}v")
            ip("-n", host.space, "link", "set", f"{host.space}v", "up")
            ip("-n", host.space, "link", "set", "lo", "up")

    def close(self):
        """End everything there."""
        for host in self:
            for process in self.processes(host):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            ip("netns", "del", host.space, check=False)
        for process in self.started:
            process.wait()
            process.stdout.close()

    @staticmethod
    def processes(host):
        """The processes on a host."""
        return [int(each) for each in ip("netns", "pids", host.space, check=False).split()]

    def torchrun(self, number, directory, *arguments, options=("--nnodes=2",), ranks=1, **how):
        """Start a host's part of a job, of so many ranks."""
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
        command += ["--rdzv-backend=c10d", f"--rdzv-endpoint={self[0].address}:{PORT}"]
        command += ["--rdzv-id=job", f"--local-addr={self[number].address}", *options]
        process = self[number].start(*command, SCRIPT, directory, *arguments, **how)
        self.started.append(process)
        return process


def ip(*arguments, check=True):
    result = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if check and result.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {result.stderr.strip()}")
    return result.stdout


@pytest.fixture
def hosts(tmp_path):
    """Two hosts that reach each other over a network."""
    if os.geteuid() or not (shutil.which("ip") and shutil.which("unshare")):
        pytest.skip("only root may make network namespaces, by ip and unshare")
    both = Hosts(tmp_path)
    try:
        both.open()
    except OSError as error:
        both.close()
        pytest.skip(f"network namespaces cannot be made here: {error}")
    yield both
    both.close()

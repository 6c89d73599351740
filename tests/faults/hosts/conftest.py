"""Some hosts on one machine: a network namespace, a host name and a mount table each.

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
    """One of some machines."""

    def __init__(self, number, label, names):
        self.names = names
        self.space = f"{label}{number}"
        self.name = f"{'abc'[number]}-host"
        self.address = f"10.77.0.{number + 1}"

    def way(self, setup="true"):
        """The beginning of a command that runs there."""
        named = f"hostname {self.name} && mount --bind {self.names} /etc/hosts"
        inside = ["sh", "-c", f'{named} && {setup} && exec "$@"', "sh"]
        return ["ip", "netns", "exec", self.space, "unshare", "--uts", "--mount", *inside]

    @property
    def environment(self):
        """What a rank there needs to know."""
        return {"GLOO_SOCKET_IFNAME": f"{self.space}v"}

    def start(self, *command, env=(), setup="true"):
        """Start a command there, in a group of its own."""
        return subprocess.Popen(
            [*self.way(setup), *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, **self.environment, **dict(env)},
        )

    def connect(self, way):
        """Connect it to the others, "up", or cut it off, "down"."""
        ip("-n", self.space, "link", "set", f"{self.space}v", way)


class Hosts(list):
    """All of them; what was started on them is ended with them."""

    script = SCRIPT

    def __init__(self, directory, count):
        label, names = f"cam{os.getpid() % 10_000}", directory / "hosts"
        super().__init__(Host(number, label, names) for number in range(count))
        self.switch = f"{label}s"
        lines = [f"{host.address} {host.name}" for host in self]
        names.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        self.started = []

    def open(self):
        """Make them, and a network between them."""
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "between", "type", "bridge")
        ip("-n", self.switch, "link", "set", "between", "up")
        for host in self:
            ip("netns", "add", host.space)
            own, other = f"{host.space}v", f"{host.space}s"
            ends = [("name", own, "netns", host.space), ("name", other, "netns", self.switch)]
            ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
            ip("-n", self.switch, "link", "set", other, "master", "between", "up")
            ip("-n", host.space, "addr", "add", f"{host.address}/24", "dev", own)
            host.connect("up")
            ip("-n", host.space, "link", "set", "lo", "up")

    def close(self):
        """End everything there."""
        for host in self:
            for process in self.processes(host):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            ip("netns", "del", host.space, check=False)
        ip("netns", "del", self.switch, check=False)
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
def hosts(tmp_path, request):
    """Hosts that reach each other over a network: two, or as many as a parameter says."""
    if os.geteuid() or not (shutil.which("ip") and shutil.which("unshare")):
        pytest.skip("only root may make network namespaces, by ip and unshare")
    made = Hosts(tmp_path, getattr(request, "param", 2))
    try:
        made.open()
    except OSError as error:
        made.close()
        pytest.skip(f"network namespaces cannot be made here: {error}")
    yield made
    made.close()

"""Jobs of several ranks that fail: who ends when, saying what, and what is left on the disk."""

import json
import os
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from camshaft.handlers.checkpoint import checkpoints

SCRIPT = Path(__file__).with_name("train.py")
TIMEOUT = 4
"""Seconds that a rank waits for another one."""
HOST = socket.gethostname()
SILENT = r"no rank has said why; ranks? \[?(\d, )*{rank}(, \d)*\]? ha.* said nothing"
SAID = {
    "raise": rf"rank {{rank}} (\({HOST}\) failed first: ValueError|on {HOST}): the fault",
    **dict.fromkeys(("kill", "stop"), SILENT),
}
"""What the other ranks say when one fails; a rank on a busy machine may be late, too.

A rank whose thread could not write its part of a checkpoint has told rank 0, which says so.
"""
REPORTED = re.compile(r"saved (\S+) \(")


class Job:
    """Runs `train.py` on several ranks, whom nobody ends but their own faults.

    Like torchrun, it gives the same store to all attempts.
    """

    def __init__(self, processes, directory):
        self.processes, self.directory = processes, directory
        self.marker = directory.with_name(f"{directory.name}.fault")
        self.store = processes.rank_store()

    def run(self, count, *arguments):
        """The ends of all ranks; one that still stands still when the others have ended is killed.

        Each has `code`, `stderr`, and `seconds` from the fault to its end.
        """
        arguments = (self.directory, "--timeout", TIMEOUT, *arguments)
        started = self.processes.start_ranks(count, SCRIPT, *arguments, store=self.store)
        with ThreadPoolExecutor(count) as pool:
            ends = [pool.submit(self._end, each) for each in started]
            self._end_who_stands_still(started)
            return [end.result() for end in ends]

    def _end(self, process):
        with process:
            result = process.result()
        seconds = time.time() - self.failed_at if self.failed_at else None
        return SimpleNamespace(code=result.returncode, stderr=result.stderr, seconds=seconds)

    def _end_who_stands_still(self, started):
        """As an agent or a person does, but only once the others have ended."""
        end = time.monotonic() + 90
        while sum(each.returncode is None for each in started):
            time.sleep(0.02)
            if self.victim and all(
                e.returncode is not None or e.pid == self.victim for e in started
            ):
                self._kill(self.victim)
            assert time.monotonic() < end, "ranks have not ended"

    @staticmethod
    def _kill(process):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    @property
    def failed_at(self):
        """When the fault happened, as `time.time`; None if it has not."""
        return float(self.marker.read_text().split()[0]) if self.marker.exists() else None

    @property
    def victim(self):
        """The process with the fault."""
        said = self.marker.read_text().split() if self.marker.exists() else []
        return int(said[1]) if len(said) == 2 else None

    def check(self, fault, count, whole, *arguments, then=None):
        """Run with a fault, see how it ended, and go on; False if its moment never came.

        With `then`, it goes on with so many ranks: the same samples, sums rounded otherwise.
        """
        rank, kind, *_ = fault.split(":")
        then = then or count
        ends = self.run(count, f"--fault={fault}", *arguments)
        if self.failed_at is None:
            assert [each.code for each in ends] == [0] * count
        else:
            assert all(each.code != 0 for each in ends)
            for each in (end for number, end in enumerate(ends) if number != int(rank)):
                assert each.seconds < TIMEOUT + 5 * busy(), each.stderr[-3000:]
                assert re.search(SAID[kind].format(rank=rank), each.stderr), each.stderr[-3000:]
            self.check_saves(ends[0].stderr)
            rest = self.run(then, *arguments)
            assert [each.code for each in rest] == [0] * then, rest[0].stderr[-3000:]
        self.compare(whole(count, *arguments), then if self.failed_at else count)
        assert self.left == []
        return self.failed_at is not None

    def compare(self, expected, count):
        """The run, which has ended on so many ranks, was the one that nothing happened to."""
        found = self.outcome(count)
        assert samples(found).items() <= samples(expected).items()  # a resumed one has the rest
        if count == len(expected):
            assert bits(found) == bits(expected)
        else:
            one, other = (torch.cat([*map(flat, each[0]["values"])]) for each in (found, expected))
            assert found[0]["iteration"] == expected[0]["iteration"]
            assert (one - other).abs().max() < 1e-12

    def outcome(self, count):
        """What each rank has written at the end of a run."""
        files = [
            self.directory.with_name(f"{self.directory.name}.rank-{rank}.json")
            for rank in range(count)
        ]
        return [json.loads(file.read_text()) for file in files]

    def check_saves(self, stderr):
        """The newest checkpoint that was reported is there and whole."""
        reported = [Path(each) for each in REPORTED.findall(stderr)]
        newest = checkpoints(self.directory).latest()
        if reported:
            assert newest is not None
            assert newest.path.name >= reported[-1].name

    @property
    def left(self):
        """What does not belong in a directory whose run is over."""
        found = [path.relative_to(self.directory) for path in self.directory.rglob("*")]
        return [
            str(path)
            for path in found
            if any(part.startswith(".") for part in path.parts) or path.name == "LOCK"
        ]


def bits(outcome):
    """What is equal to the last bit, also after an interruption."""
    return [each | {"began": None, "samples": None} for each in outcome]


def samples(outcome):
    """By iteration: the samples of all ranks."""
    read = [each["samples"] for each in outcome]
    return {n: sorted(sample for each in read for sample in each[n]) for n in read[0]}


def flat(values):
    return torch.tensor(values, dtype=torch.float64).reshape(-1)


def busy():
    """How many times as long as on an idle machine a process may take for its own work."""
    return max(1.0, os.getloadavg()[0] / os.cpu_count())


@pytest.fixture
def job(processes, tmp_path):
    """Makes a job in a directory of its own."""
    return lambda name="run": Job(processes, tmp_path / name)


@pytest.fixture(scope="session")
def whole(processes, tmp_path_factory):
    """The outcome on so many ranks of the run that nothing happened to."""
    found = {}

    def of(count, *arguments):
        if (count, *arguments) not in found:
            job = Job(processes, tmp_path_factory.mktemp("whole") / "run")
            assert [each.code for each in job.run(count, *arguments)] == [0] * count
            assert job.left == []
            found[count, *arguments] = job.outcome(count)
        return found[count, *arguments]

    return of


@pytest.fixture
def torchrun(processes):
    """Runs `train.py` on two ranks by the real one; its result."""

    def run(directory, *arguments, options=(), code=0):
        given = ["--shutdown-timeout=1", *options]
        command = (SCRIPT, directory, "--timeout", TIMEOUT, *arguments)
        return processes.torchrun(*command, given=given, code=code)

    return run

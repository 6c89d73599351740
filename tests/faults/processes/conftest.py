"""Runs of `train.py` in processes of their own, started from one that has imported everything."""

import json
import multiprocessing
import os
import runpy
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from threading import Lock

import pytest

SCRIPT = Path(__file__).with_name("train.py")
FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(
    [
        *("sklearn.datasets", "torchmetrics.classification", "camshaft.handlers"),
        "torch._dynamo",  # which the first optimizer imports
    ]
)


GUARD = Lock()
"""Starting a process, and asking for its end, look at all others: one thread at a time."""


class Run:
    """One process, the leader of a group of its own, as a job's is."""

    def __init__(self, directory, *arguments):
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._told = directory.with_name(f"{directory.name}.told")
        self._told.write_text("")
        given = {"ARGUMENTS": [str(directory), "--tell", str(self._told), *map(str, arguments)]}
        self.process = FRESH.Process(target=runpy.run_path, args=(str(SCRIPT), given, "__main__"))
        with GUARD:
            self.process.start()

    @property
    def reached(self):
        """The last iteration that began, 0 before the first."""
        return int((self._told.read_text().splitlines() or [0])[-1])

    def wait_for(self, iteration):
        """Wait until an iteration has begun, or the process has ended."""
        while self.reached < iteration and not wait([self.process.sentinel], 0.002):
            pass

    @property
    def survivors(self):
        """True if some process of the group is still there."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self, number):
        """Send a signal to the process and all its workers."""
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(self.process.pid, number)

    def end(self):
        """Wait for the end; the exit code, which is negative after a signal."""
        wait([self.process.sentinel])
        with GUARD:
            self.process.join()
        return self.process.exitcode

    def result(self):
        """Wait for the end and read what came out."""
        assert self.end() == 0
        return json.loads((self.directory / "result.json").read_text())


@pytest.fixture
def run():
    """Start `train.py` with some arguments."""
    return Run

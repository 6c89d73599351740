"""Runs of `train.py` in processes of their own, started from one that has imported everything."""

import json
import multiprocessing
import os
import random
import runpy
from contextlib import suppress
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from threading import Lock

import pytest

from camshaft.handlers.checkpoint import checkpoints

SCRIPT = Path(__file__).with_name("train.py")
FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(
    [
        *("sklearn.datasets", "torchmetrics.classification", "camshaft.handlers"),
        *("tensorboardX.record_writer", "tensorboardX.summary"),
        "torch._dynamo",  # which the first optimizer imports
    ]
)


GUARD = Lock()
"""Starting a process, and asking for its end, look at all others: one thread at a time."""


class Run:
    """One process, the leader of a group of its own, as a job's is."""

    LENGTH = 21
    """Iterations of the whole run."""

    def __init__(self, directory, *arguments, told=None):
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._told = told or directory.with_name(f"{directory.name}.told")
        self._told.write_text("")
        given = {"ARGUMENTS": [str(directory), "--tell", str(self._told), *map(str, arguments)]}
        self.process = FRESH.Process(target=runpy.run_path, args=(str(SCRIPT), given, "__main__"))
        with GUARD:
            self.process.start()

    @property
    def reached(self):
        """The last iteration that began, 0 before the first."""
        return int((self._told.read_text().splitlines() or [0])[-1])

    @property
    def newest(self):
        """The iteration of the newest good checkpoint, 0 if there is none."""
        saved = checkpoints(self.directory).latest()
        return 0 if saved is None else saved.manifest.iteration

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
        for send in (os.killpg, os.kill):  # at first it has no group; it may have ended by itself
            with suppress(ProcessLookupError):
                return send(self.process.pid, number)

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


CASES = {
    "plain": (),
    "workers": ("--workers", 2),
    "accumulated": ("--accumulate", 3),
    "in the foreground": ("--foreground",),
    "with every log": ("--logs",),
}


class Tally:
    """Counts the kills of several runs, and how they went."""

    def __init__(self, case, directory, seed, **settings):
        self.directory, self.chance, self.run = (
            directory,
            random.Random(seed),
            partial(Run, **settings),
        )
        self.options = ("--save-every", 1, "--validate-every", 2, *CASES[case])
        self.expected = self.run(directory / "whole", *self.options).result()
        self.kills = self.inside = 0

    def kill_until(self, kills, hit):
        """Start runs, hit each at a random moment and go on with it, until so many were hit."""
        number = 0
        while self.kills < kills:
            number += 1
            assert number < 100, "nearly all that was sent came too late"
            outcome = self.one_run(self.directory / str(number), hit)
            if outcome["next"] is None:  # the last process found that all was done
                outcome["next"] = self.expected["next"]
            assert outcome == self.expected

    def one_run(self, directory, hit):
        """One run to its end, hit again and again."""
        durable = 0
        for other in range(1000):
            seed = other if durable else 0  # before the first checkpoint, a run begins anew
            process = self.run(directory, "--seed", seed, *self.options)
            code = hit(process, self.chance)
            found = process.newest
            assert found >= durable, "a checkpoint that was on the disk is gone"
            # The save before the last one was waited for; in between lies a window each.
            window = 3 if "--accumulate" in self.options else 1
            assert code == 0 or found >= process.reached - 2 * window
            durable = found
            if code == 0:
                return process.result()
            self.kills += 1
        raise AssertionError("never came to its end")


@pytest.fixture
def run():
    """Start `train.py` with some arguments."""
    return Run


@pytest.fixture
def tally():
    """Count the kills of `train.py`, run in one of several ways."""
    return Tally

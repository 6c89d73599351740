"""Runs of `train.py` in processes of their own."""

import json
import os
import random
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from camshaft.handlers.checkpoint import checkpoints

SCRIPT = Path(__file__).with_name("train.py")


class Run:
    """One process, the leader of a group of its own, as a job's is."""

    LENGTH = 21
    """Iterations of the whole run."""

    def __init__(self, processes, directory, *arguments, told=None, **options):
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._told = told or directory.with_name(f"{directory.name}.told")
        self._told.write_text("")
        self.process = processes.start(
            SCRIPT, directory, "--tell", self._told, *arguments, **options
        )

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
        while self.reached < iteration and self.process.wait(0.002) is None:
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
        self.process.send_signal(number, group=True)

    def end(self):
        """Wait for the end; the exit code, which is negative after a signal."""
        with self.process:
            return self.process.wait()

    def result(self):
        """Wait for the end and read what came out."""
        with self.process:
            assert self.process.wait() == 0, self.process.stderr.read()[-4000:]
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

    def __init__(self, run, case, directory, seed, **settings):
        self.directory, self.chance = directory, random.Random(seed)
        self.run = partial(run, **settings)
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
        """One run to its end, hit up to twelve times: a slow machine may never reach it between."""
        durable = 0
        for other in range(13):
            seed = other if durable else 0  # before the first checkpoint, a run begins anew
            process = self.run(directory, "--seed", seed, *self.options)
            code = hit(process, self.chance) if other < 12 else process.end()
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
def run(processes):
    """Start `train.py` with some arguments."""
    return partial(Run, processes)


@pytest.fixture
def tally(run):
    """Count the kills of `train.py`, run in one of several ways."""
    return partial(Tally, run)


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    """The options of a process on a machine with a slow disk or a wrong clock: `machine.c`."""
    if (compiler := shutil.which("cc")) is None or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a C compiler")
    source = Path(__file__).with_name("machine.c")
    library = tmp_path_factory.mktemp("machine") / "machine.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)

    def options(**environment):
        given = {name: str(value) for name, value in environment.items()}
        return {"fresh": True, "env": {"LD_PRELOAD": str(library), **given}}

    return options

"""Killed at any moment, again and again, a run ends as the run that was never interrupted."""

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from camshaft.handlers.checkpoint import checkpoints

LENGTH = 21
CASES = {
    "plain": (),
    "workers": ("--workers", 2),
    "accumulated": ("--accumulate", 3),
    "in the foreground": ("--foreground",),
}


def newest(directory):
    """The iteration of the newest good checkpoint, 0 if there is none."""
    saved = checkpoints(directory).latest()
    return 0 if saved is None else saved.manifest.iteration


class Tally:
    """Counts the kills of several runs, and how they went."""

    def __init__(self, run, directory, options, seed):
        self.run, self.directory, self.chance = run, directory, random.Random(seed)
        self.options = ("--save-every", 1, "--validate-every", 2, *options)
        self.expected = run(directory / "whole", *self.options).result()
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
            found = newest(directory)
            assert found >= durable, "a checkpoint that was on the disk is gone"
            # The save before the last one was waited for; in between lies a window each.
            window = 3 if "--accumulate" in self.options else 1
            assert code == 0 or found >= process.reached - 2 * window
            durable = found
            if code == 0:
                return process.result()
            self.kills += 1
        raise AssertionError("never came to its end")


def kill(process, chance):
    """SIGKILL to the whole group, at some time from the start of the process to its end."""
    if chance.random() < 0.7:
        process.wait_for(chance.randint(1, LENGTH))
    time.sleep(chance.uniform(0, 0.03))
    process.kill(signal.SIGKILL)
    code = process.end()
    assert code in (0, -signal.SIGKILL)
    return code


def ask_to_stop(process, chance):
    """SIGTERM to the whole group: in training, evaluation or a save."""
    process.wait_for(1)
    time.sleep(chance.uniform(0, 0.25))
    process.kill(signal.SIGTERM)
    code = process.end()
    over = newest(process.directory) == LENGTH  # then the script may have stopped listening
    assert code in (0, 128 + signal.SIGTERM) or (over and code == -signal.SIGTERM)
    assert gone(process)
    if code:
        assert newest(process.directory) == process.reached  # nothing is lost
    return code


def ask_and_kill(process, chance):
    """SIGTERM, and soon after it another one, or SIGKILL."""
    process.wait_for(1)
    time.sleep(chance.uniform(0, 0.2))
    process.kill(signal.SIGTERM)
    time.sleep(chance.uniform(0, 0.02))
    process.kill(chance.choice([signal.SIGTERM, signal.SIGKILL]))
    code = process.end()
    assert code in (0, 128 + signal.SIGTERM, -signal.SIGTERM, -signal.SIGKILL)
    return code


def gone(process):
    """True as soon as no worker is left; a few seconds are time enough for any machine."""
    deadline = time.monotonic() + 20
    while process.survivors and time.monotonic() < deadline:
        time.sleep(0.01)
    return not process.survivors


@pytest.mark.parametrize("case", CASES)
def test_kills_at_any_moment_lose_next_to_nothing_and_change_nothing(run, tmp_path, case):
    Tally(run, tmp_path, CASES[case], seed=1).kill_until(6, kill)


@pytest.mark.parametrize("case", ["plain", "workers", "accumulated"])
def test_a_group_that_is_asked_to_stop_saves_the_very_step(run, tmp_path, case):
    Tally(run, tmp_path, CASES[case], seed=2).kill_until(5, ask_to_stop)


def test_a_group_that_is_asked_twice_or_not_given_time_loses_next_to_nothing(run, tmp_path):
    Tally(run, tmp_path, CASES["workers"], seed=3).kill_until(5, ask_and_kill)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("hit", [kill, ask_to_stop, ask_and_kill])
def test_hundreds_of_hits_change_nothing(run, tmp_path, case, hit):
    def some(seed):
        tally = Tally(run, tmp_path / str(seed), CASES[case], seed)
        tally.kill_until(40, hit)
        return tally.kills

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(some, range(2))) >= 80


def test_a_worker_that_is_killed_ends_the_run_with_a_checkpoint_to_go_on_from(run, tmp_path):
    options = ("--workers", 2, "--save-every", 1)
    expected = run(tmp_path / "whole", *options).result()
    process = run(tmp_path / "run", *options)
    process.wait_for(3)
    children = Path(f"/proc/{process.process.pid}/task/{process.process.pid}/children")
    workers = children.read_text().split()
    if workers:
        os.kill(int(workers[0]), signal.SIGKILL)
        assert process.end() in (0, 1)
    assert newest(tmp_path / "run") >= 1
    assert run(tmp_path / "run", "--seed", 5, *options).result() == expected

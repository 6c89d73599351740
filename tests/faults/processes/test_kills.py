"""Killed at any moment, again and again, a run ends as the run that was never interrupted."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

CASES = ["plain", "workers", "accumulated", "in the foreground", "with every log"]
MARKS = {"with every log": pytest.mark.slow}
FEW = [pytest.param(each, marks=MARKS.get(each, pytest.mark.soak)) for each in CASES]


def kill(process, chance):
    """SIGKILL to the whole group, at some time from the start of the process to its end."""
    if chance.random() < 0.7:
        process.wait_for(chance.randint(1, process.LENGTH))
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
    over = process.newest == process.LENGTH  # then the script may have stopped listening
    assert code in (0, 128 + signal.SIGTERM) or (over and code == -signal.SIGTERM)
    assert gone(process)
    if code:
        assert process.newest == process.reached  # nothing is lost
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


@pytest.mark.parametrize("case", FEW)
def test_kills_at_any_moment_lose_next_to_nothing_and_change_nothing(tally, tmp_path, case):
    tally(case, tmp_path, seed=1).kill_until(2, kill)


@pytest.mark.soak
@pytest.mark.parametrize("case", ["workers", "plain"])
def test_a_group_that_is_asked_to_stop_saves_the_very_step(tally, tmp_path, case):
    tally(case, tmp_path, seed=2).kill_until(2, ask_to_stop)


@pytest.mark.slow
def test_a_group_that_is_asked_twice_or_not_given_time_loses_next_to_nothing(tally, tmp_path):
    tally("workers", tmp_path, seed=3).kill_until(5, ask_and_kill)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("hit", [kill, ask_to_stop, ask_and_kill])
def test_hundreds_of_hits_change_nothing(tally, tmp_path, case, hit):
    def some(seed):
        count = tally(case, tmp_path / str(seed), seed)
        count.kill_until(40, hit)
        return count.kills

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(some, range(2))) >= 80


@pytest.mark.slow
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
    assert process.newest >= 1
    assert run(tmp_path / "run", "--seed", 5, *options).result() == expected

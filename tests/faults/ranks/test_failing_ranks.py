"""A rank fails: the others end in time and say why, and the run goes on to the same bits."""

import os
import random
from collections import Counter

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        "1:raise:collective:5",
        "1:kill:step:3",
        "0:kill:writing:4",
        "0:raise:manifest:4",
        "1:stop:evaluation:6",
    ],
)
def test_ranks_end_in_time_when_one_fails_and_the_run_goes_on(job, whole, fault):
    assert job().check(fault, 2, whole)


@pytest.mark.soak
def test_torchrun_starts_a_run_again_after_a_hang_and_it_is_the_same_run(job, whole, torchrun):
    hanging = job()
    torchrun(hanging.directory, "--fault=1:stop:collective:5", options=["--max-restarts=3"])
    assert hanging.failed_at
    hanging.compare(whole(2), 2)
    assert hanging.left == []


@pytest.mark.slow
def test_the_summary_of_torchrun_says_which_rank_failed_first_and_why(job, torchrun):
    result = torchrun(job().directory, "--fault=1:raise:collective:5", code=1)
    summary = result.stderr[result.stderr.index("Root Cause") :]
    assert "ValueError: the fault of this rank" in summary  # rank 1's own, or as told to rank 0


SOAK = [pytest.mark.soak, pytest.mark.timeout(7200)]
PHASES = ("step", "collective", "evaluation", "copy", "writing", "manifest", "rename")


def drawn(chance):
    """A number of ranks, and a fault of one of them."""
    count = chance.choice((2, 2, 3, 4))
    rank, kind = chance.randrange(count), chance.choice(("kill", "raise", "stop"))
    phase = chance.choice((*PHASES, f"operation {chance.randint(1, 14)}"))
    if phase not in PHASES[:4] and chance.random() < 0.7:
        rank = 0  # it has most to do with a save
    return count, f"{rank}:{kind}:{phase}:{chance.randint(1, 11)}"


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        pytest.param(1, 3, marks=pytest.mark.slow),
        pytest.param(3, int(os.environ.get("FAULTS", "60")), marks=SOAK),
    ],
)
def test_after_any_fault_of_any_rank_the_run_goes_on_to_the_same_bits(job, whole, seed, faults):
    chance, counts = random.Random(seed), Counter()
    while sum(counts.values()) < faults:
        count, fault = drawn(chance)
        print(f"{sum(counts.values()):4} {count} ranks, {fault}", flush=True)
        if job(f"run-{chance.random()}").check(fault, count, whole):
            _, kind, phase, _ = fault.split(":")
            counts[f"{kind} in {phase.split()[0]}"] += 1
    print(dict(sorted(counts.items())))

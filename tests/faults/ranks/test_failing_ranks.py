"""A rank fails: the others end in time and say why, and the run goes on to the same bits.

A model sharded by FSDP2 goes on, on as many ranks or on others.
"""

import os
import random
from collections import Counter

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("1:raise:collective:5", marks=pytest.mark.soak),
        "1:kill:step:3",
        pytest.param("0:kill:writing:4", marks=pytest.mark.soak),
        "0:raise:manifest:4",
        pytest.param("1:stop:evaluation:6", marks=pytest.mark.soak),
    ],
)
def test_ranks_end_in_time_when_one_fails_and_the_run_goes_on(job, whole, fault):
    assert job().check(fault, 2, whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "then"),
    [
        pytest.param("1:kill:writing:4", 4, marks=pytest.mark.soak),
        ("2:raise:collective:5", 2),
        pytest.param("0:stop:rename:3", 1, marks=pytest.mark.soak),
    ],
)
def test_a_sharded_run_goes_on_after_a_fault_on_as_many_ranks_and_on_fewer(job, whole, fault, then):
    assert job().check(fault, 4, whole, "--sharded", then=then)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "options"),
    [("stop", ()), *((kind, ("--sharded",)) for kind in ("raise", "kill", "stop"))],
)
def test_torchrun_starts_a_run_again_and_it_is_the_same_run(job, whole, torchrun, kind, options):
    failing = job()
    fault = f"--fault=1:{kind}:collective:5"
    torchrun(failing.directory, fault, *options, options=["--max-restarts=3"])
    assert failing.failed_at
    failing.compare(whole(2, *options), 2)
    assert failing.left == []


@pytest.mark.slow
def test_the_summary_of_torchrun_says_which_rank_failed_first_and_why(job, torchrun):
    result = torchrun(job().directory, "--fault=1:raise:collective:5", code=1)
    summary = result.stderr[result.stderr.index("Root Cause") :]
    assert "ValueError: the fault of this rank" in summary  # rank 1's own, or as told to rank 0


LONG = pytest.mark.timeout(7200)
MANY = int(os.environ.get("FAULTS", "60"))
PHASES = ("step", "collective", "evaluation", "copy", "writing", "manifest", "rename")


def drawn(chance, options):
    """A number of ranks, a fault of one of them, and how many ranks go on."""
    count = chance.choice((4, 4, 2) if options else (2, 2, 3, 4))
    rank, kind = chance.randrange(count), chance.choice(("kill", "raise", "stop"))
    # Of a sharded run each rank writes, so what it does with files fails more often.
    operations = (f"operation {chance.randint(1, 14)}" for _ in range(5 if options else 1))
    phase = chance.choice((*PHASES, *operations))
    if phase in ("manifest", "rename") or (phase not in PHASES[:4] and chance.random() < 0.5):
        rank = 0  # which alone does the first two, and has most to do with a save
    others = [n for n in (1, 2, 4) if n != count]
    then = chance.choice(others) if options and chance.random() < 0.5 else count
    return count, f"{rank}:{kind}:{phase}:{chance.randint(1, 11)}", then


@pytest.mark.soak
@pytest.mark.parametrize(
    ("seed", "faults", "options"),
    [
        pytest.param(3, MANY, (), marks=LONG),
        pytest.param(1, MANY, ("--sharded",), marks=LONG),
        (1, 3, ()),
    ],
)
def test_after_any_fault_of_any_rank_the_run_goes_on_to_the_same_bits_or_on_other_ranks(
    job, whole, seed, faults, options
):
    chance, counts = random.Random(seed), Counter()
    while sum(counts.values()) < faults:
        count, fault, then = drawn(chance, options)
        print(f"{sum(counts.values()):4} {count} ranks, {fault}, then {then}", flush=True)
        if job(f"run-{chance.random()}").check(fault, count, whole, *options, then=then):
            _, kind, phase, _ = fault.split(":")
            end = "the same bits" if then == count else f"{count} -> {then}"
            counts[f"{kind} in {phase.split()[0]}, {end}"] += 1
    print(dict(sorted(counts.items())))

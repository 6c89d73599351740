"""A rank of a model sharded by FSDP2 fails: the run goes on, on as many ranks or on others."""

import os
import random
from collections import Counter

import pytest

PHASES = ("step", "collective", "evaluation", "copy", "writing", "manifest", "rename")


def drawn(chance, counts=(4, 4, 2)):
    """A number of ranks, a fault of one of them, and how many ranks go on."""
    count = chance.choice(counts)
    rank, kind = chance.randrange(count), chance.choice(("kill", "raise", "stop"))
    phase = chance.choice((*PHASES, *(f"operation {chance.randint(1, 14)}" for _ in range(5))))
    if phase in ("manifest", "rename"):
        rank = 0  # which alone does it
    then = count if chance.random() < 0.5 else chance.choice([n for n in (1, 2, 4) if n != count])
    return count, f"{rank}:{kind}:{phase}:{chance.randint(1, 11)}", then


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "then"),
    [
        ("1:kill:writing:4", 4),
        ("2:raise:collective:5", 2),
        pytest.param("0:stop:rename:3", 1, marks=pytest.mark.soak),
    ],
)
def test_a_sharded_run_goes_on_after_a_fault_on_as_many_ranks_and_on_fewer(job, whole, fault, then):
    assert job().check(fault, 4, whole, "--sharded", then=then)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["raise", "kill", "stop"])
def test_torchrun_starts_a_sharded_run_again_and_it_is_the_same_run(job, whole, torchrun, kind):
    failing = job()
    options = ["--max-restarts=3"]
    torchrun(failing.directory, f"--fault=1:{kind}:collective:5", "--sharded", options=options)
    assert failing.failed_at
    failing.compare(whole(2, "--sharded"), 2)
    assert failing.left == []


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_after_any_fault_a_sharded_run_goes_on_to_the_same_bits_or_on_other_ranks(job, whole):
    chance, counts = random.Random(int(os.environ.get("SEED", "1"))), Counter()
    while sum(counts.values()) < int(os.environ.get("FAULTS", "60")):
        count, fault, then = drawn(chance)
        print(f"{sum(counts.values()):4} {count} ranks, {fault}, then {then}", flush=True)
        if job(f"run-{chance.random()}").check(fault, count, whole, "--sharded", then=then):
            _, kind, phase, _ = fault.split(":")
            end = "the same bits" if then == count else f"{count} -> {then}"
            counts[f"{kind} in {phase.split()[0]}, {end}"] += 1
    print(dict(sorted(counts.items())))

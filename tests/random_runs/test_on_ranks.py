"""Runs on two ranks that hypothesis makes up, left at moments that it makes up."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from random_runs.draws.on_ranks import scripts_on_ranks
from random_runs.moments import Kill
from random_runs.on_ranks import Leave, PlanOnRanks, check

# What is drawn may be what scripts are warned of; torchdata uses what torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore")


def look_at(launch, place, number, seeded):
    """Compare so many drawn runs; the first difference is printed as text that can be run again."""
    counts = Counter()

    @seed(seeded)
    @given(script=scripts_on_ranks())
    @settings(
        max_examples=number,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def look(script):
        plan, leaves = script
        counts.update(draws=1)
        try:
            counts.update(check(launch, plan, leaves, Path(place, str(counts["draws"]))))
        except Exception as error:
            error.add_note(f"check({plan!r}, {leaves!r})")
            print(*error.__notes__, error, sep="\n", flush=True)
            raise

    look()
    print(counts)
    return counts


@pytest.mark.slow
def test_a_rewind_after_a_resume_puts_back_shards_of_the_momentum(processes, tmp_path):
    handlers = (
        "Checkpoint(place, when=STEP_COMPLETED(at=7), resume=True, background=False)",
        "SpikeGuard('rewind', steps=3, deviations=0.5, window=3, limit=1000)",
    )
    data, engine = "DataLoader(Buffered(15 + R), 2)", "supervised(3, precision='bf16')"
    plan = PlanOnRanks(data, engine, handlers, "epoch_length=16, max_epochs=4", "shard='1'")
    check(processes, plan, [Leave("raise", Kill("ITERATION_STARTED", 900), (0, 1))], tmp_path)


@pytest.mark.slow
def test_a_few_runs_on_ranks_left_anywhere_are_the_whole_runs(processes, tmp_path):
    assert look_at(processes, tmp_path, 5, 0)["resumes"]


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_hundreds_of_runs_on_ranks_left_anywhere_are_the_whole_runs(processes, tmp_path):
    assert look_at(processes, tmp_path, 500, 1)["resumes"] > 500

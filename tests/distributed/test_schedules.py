"""Schedules count performed steps, on however many ranks, whether interrupted or not."""

import json
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def ranks(processes, tmp_path_factory):
    """What each of so many ranks has written down."""

    @cache
    def run(count, stop_at):
        directory = tmp_path_factory.mktemp("run")
        script = HERE / "schedules_on_ranks.py"
        results = processes.run_ranks(count, script, directory, stop_at)
        assert not any("lr_scheduler" in each.stderr for each in results)  # called in wrong order
        files = [directory / f"rank-{rank}.json" for rank in range(count)]
        return [json.loads(file.read_text()) for file in files]

    return run


@pytest.mark.parametrize(
    ("count", "stop_at"),
    [*((2, 0), (2, 7)), *(pytest.param(4, stop_at, marks=pytest.mark.soak) for stop_at in (0, 8))],
)
def test_the_rates_are_the_same_on_however_many_ranks_interrupted_or_not(ranks, count, stop_at):
    (alone,) = ranks(1, 0)
    assert len(alone["rates"]) == 9
    assert [each["rates"] for each in ranks(count, stop_at)] == [alone["rates"]] * count


def test_an_interrupted_run_with_frozen_layers_is_the_same_run_on_two_ranks(ranks):
    whole, interrupted = ranks(2, 0), ranks(2, 7)
    assert whole == interrupted
    assert whole[0]["weights"] == whole[1]["weights"]

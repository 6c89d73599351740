"""An evaluation of 499 samples is the same on any number of ranks, and so is what goes by it."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "evaluation_on_ranks.py"


def results(processes, directory, count):
    if count > 1:
        processes.run_ranks(count, SCRIPT, directory)
    else:
        processes.run(SCRIPT, directory, "alone")
    return [json.loads((directory / f"{count}-{rank}.json").read_text()) for rank in range(count)]


@pytest.fixture(scope="module")
def alone(processes, tmp_path_factory):
    return results(processes, tmp_path_factory.mktemp("alone"), 1)[0]


@pytest.mark.parametrize(
    "count", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.soak)]
)
def test_loss_accuracy_and_what_is_collected_are_those_of_one_rank(
    alone, processes, tmp_path, count
):
    assert alone["in order"]
    found = results(processes, tmp_path, count)
    for each in found:
        for name in ("accuracy", "loss", "in order"):
            assert each[name] == alone[name]
        assert each == found[0]  # averages and the best weights too
    if count == 2:  # the run is over, and its best weights are there again
        assert results(processes, tmp_path, count) == found


def test_a_compiled_model_is_evaluated_like_a_plain_one_where_ranks_have_unlike_numbers(
    processes, tmp_path
):
    processes.run_ranks(2, SCRIPT.with_name("compiled_on_ranks.py"), tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second  # one model on both ranks
    assert first["compiled"] == first["plain"]

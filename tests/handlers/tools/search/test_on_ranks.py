"""Settings found on two ranks, where each rank has other data and other memory."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("on_ranks.py")


@pytest.fixture(scope="module")
def results(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("ranks")
    processes.run_ranks(2, SCRIPT, directory)
    return [json.loads((directory / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.slow
def test_the_size_is_the_smallest_of_all_ranks_and_no_rank_waits_for_one_that_failed(results):
    assert [each["sizes"] for each in results] == [[70, 70]] * 2
    assert "needs all ranks" in results[0]["with sync"]


def test_all_ranks_have_the_same_rates_and_the_mean_of_their_losses(results):
    first, second = results
    assert len(first["rates"]) > 5
    assert (first["rates"], first["losses"]) == (second["rates"], second["losses"])
    assert first["losses"][0] == pytest.approx((first["own"] + second["own"]) / 2, rel=1e-6)
    assert first["own"] != second["own"]
    assert first["same"] is second["same"] is True
    assert first["weights"] == second["weights"]  # gradients are averaged again, too
    assert first["trained"] != second["trained"]  # of a rank's own data


def test_rank_0_reports_and_all_ranks_are_pruned_together(results):
    first, second = results
    assert first["pruned"] == second["pruned"] != ""
    assert first["epochs"] == second["epochs"] == [1, 2]
    assert first["reported"] == [1, 2]

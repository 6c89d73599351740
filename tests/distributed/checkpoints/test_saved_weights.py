"""Saved weights in an evaluation on ranks, and a state that no rank could put back."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("saved_weights_on_ranks.py")


@pytest.mark.slow
def test_ranks_measure_saved_weights_and_refuse_together_what_cannot_be_put_back(
    processes, tmp_path
):
    results = processes.run_ranks(2, SCRIPT, tmp_path)
    for rank, result in enumerate(results):
        # With DDP, rank 0 reads back what it saves, and the other one hears of it.
        assert (
            rank or f"{rank} TypeError engine.objects['optimizer'] is a Inherits" in result.stdout
        )
        told = result.stderr.count("the evaluation measures the weights that the script made")
        assert told == (2 if rank == 0 else 0)  # of each model, by one rank
    assert [*(tmp_path / "odd").glob("iteration*")] == []

"""A rank that is late with its part of a save."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("late_on_ranks.py")


@pytest.mark.slow
def test_what_a_late_rank_tells_of_a_save_is_not_taken_for_the_next_one(processes, tmp_path):
    """Both saves are of one iteration, by hand and at the end of the epoch."""
    first, second = processes.run_ranks(2, SCRIPT, tmp_path)
    assert "rank 1 did not tell that it has written" in first.stderr
    for each in (first, second):
        assert json.loads(each.stdout) == [[2, "by hand, Events.EPOCH_COMPLETED"]]

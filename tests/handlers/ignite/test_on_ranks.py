"""Handlers of ignite on two ranks."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("on_ranks.py")


@pytest.mark.slow
def test_on_two_ranks_results_are_ignites_and_a_resumed_run_is_the_whole_one(processes, tmp_path):
    processes.run_ranks(2, SCRIPT, tmp_path)
    for rank in (0, 1):
        assert json.loads((tmp_path / f"rank-{rank}.json").read_text()) == {
            **{"equal": True, "count": 60, "stopped": [2, 2]},
            **{"interrupted": 4, "resumed": True, "weights": True},
        }

"""Handlers of ignite on two ranks."""

import json
from pathlib import Path

import pytest

from .sides import EPOCHS, read_events


@pytest.mark.slow
def test_on_two_ranks_results_are_ignites_and_a_resumed_run_is_the_whole_one(processes, tmp_path):
    pytest.importorskip("tensorboard")
    processes.run_ranks(2, Path(__file__).with_name("adapter_on_ranks.py"), tmp_path)
    for rank in (0, 1):
        assert json.loads((tmp_path / f"rank-{rank}.json").read_text()) == {
            **{"unequal": [], "count": 60, "files": 2, "shown": True, "rates": True},
            **{"stopped": [2, 2], "interrupted": 4, "resumed": True, "remembered": True},
            **{"ended": [4, 4], "finders": True},
        }
    boards = [read_events(tmp_path / name / "board") for name in ("ByIgnite", "ByCamshaft")]
    assert boards[0] == boards[1]
    assert len(boards[0][0]["training/accuracy"]) == EPOCHS

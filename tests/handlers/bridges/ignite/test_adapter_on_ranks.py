"""Handlers of ignite on two ranks."""

import json
from pathlib import Path

import pytest

from .sides import EPOCHS, read_events

SCRIPT = Path(__file__).with_name("adapter_on_ranks.py")


@pytest.mark.slow
def test_on_two_ranks_results_are_ignites_and_a_resumed_run_is_the_whole_one(processes, tmp_path):
    processes.run_ranks(2, SCRIPT, tmp_path)
    for rank in (0, 1):
        assert json.loads((tmp_path / f"rank-{rank}.json").read_text()) == {
            **{"equal": True, "count": 60, "stopped": [2, 2]},
            **{"interrupted": 4, "resumed": True, "weights": True},
        }


@pytest.mark.slow
def test_on_two_ranks_handlers_and_loggers_do_what_they_do_on_ignites_engine(processes, tmp_path):
    pytest.importorskip("tensorboard")
    processes.run_ranks(2, SCRIPT.with_name("handlers_on_ranks.py"), tmp_path)
    same = dict.fromkeys(("weights", "average", "rates", "console", "measured", "files"), True)
    for rank in (0, 1):
        told = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert told["rates"] > 10
        assert told | {"rates": None} == {
            **{"equal": same, "files": 2, "shown": True, "rates": None},
            **{"ended": [4, 4], "finders": True},
        }
    boards = [read_events(tmp_path / name / "board") for name in ("ByIgnite", "ByCamshaft")]
    assert boards[0] == boards[1]
    assert len(boards[0][0]["training/accuracy"]) == EPOCHS

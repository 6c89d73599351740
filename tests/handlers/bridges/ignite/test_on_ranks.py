"""The bridge on two ranks."""

import json
from pathlib import Path

import pytest


@pytest.mark.slow
def test_on_two_ranks_a_script_does_what_it_does_on_ignites_engine(processes, tmp_path):
    """Whole, resumed by ignite's checkpoints and by ours, and where rank 1 alone ends its run."""
    processes.run_ranks(2, Path(__file__).with_name("on_ranks.py"), tmp_path)
    for rank in (0, 1):
        found = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        alone = found.pop("alone")
        assert set(found.values()) == set(alone.values()) == {True}, (found, alone)

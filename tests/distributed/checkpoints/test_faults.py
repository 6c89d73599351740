"""Checkpoints of two ranks of which one fails or differs."""

import json
from pathlib import Path

import pytest

from camshaft.handlers.checkpoint import checkpoints

SCRIPT = Path(__file__).with_name("faults_on_ranks.py")


@pytest.mark.slow
def test_what_one_rank_meets_all_are_told_and_what_is_its_own_comes_back(processes, tmp_path):
    first, second = (json.loads(each.stdout) for each in processes.run_ranks(2, SCRIPT, tmp_path))
    # Rank 1 could not write: rank 0 says which rank, where and why, and the older one is there.
    assert first["raise"].startswith("OSError: could not write the checkpoint")
    assert "rank 1 on " in first["raise"]
    assert "File too large" in first["raise"]
    assert second["raise"].startswith("OSError: ")
    assert (first["warn"], second["warn"]) == (3, 3)
    assert first["saved"] == [1, 1]
    for each in ("raise", "warn"):
        assert [path.name for path in (tmp_path / each).glob(".*")] == []
        assert checkpoints(tmp_path / each).latest().manifest.iteration == 1
    # Each host has a folder of its own: an error on both, before the first iteration.
    assert "FileNotFoundError: rank 1 (first on " in first["folders"]
    assert "Name a folder that all hosts share" in first["folders"]
    assert second["folders"] == first["folders"]
    assert list((tmp_path / "host-0" / "run").iterdir()) == []
    # Running means of a rank are its own, and go on.
    assert first["whole"] != second["whole"]
    assert (first["rest"], second["rest"]) == (first["whole"], second["whole"])
    assert (first["part"], second["part"]) != (first["rest"], second["rest"])

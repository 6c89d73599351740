"""Ranks whose weights are neither equal nor shards of one tensor are never saved as rank 0's."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("alike_on_ranks.py")


@pytest.mark.slow
def test_ranks_that_hold_other_weights_save_nothing_and_are_told_what_to_write(processes, tmp_path):
    for found in map(json.loads, (e.stdout for e in processes.run_ranks(2, SCRIPT, tmp_path))):
        for name in ("forgotten", "stages", "exported"):
            assert "rank 1 and rank 0 hold other values of" in found[name], name
            assert "weight' of objects['model']" in found[name]
            assert "DistributedDataParallel(model)" in found[name]
            assert "`with ranks.alone():`" in found[name]
        assert "Error: " in found["other_forms"]
        assert found["written"] == [0] * 4
        # Running means may differ, and gradients may be averaged by hand.
        assert found["wrapped"] == [{"gather": 1, "broadcast": 1}, True]
        assert found["averaged_by_hand"] == 2
        assert found["stages_alone"] == [True, True]

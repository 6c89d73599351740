"""Kinds of tensors, optimizers and options in checkpoints that two ranks write."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("kinds_on_ranks.py")


@pytest.mark.slow
def test_every_kind_of_tensor_and_option_goes_on_to_the_same_bits_on_ranks(processes, tmp_path):
    results = processes.run_ranks(2, SCRIPT, tmp_path)
    first, second = (json.loads(each.stdout) for each in results)
    for name in ("tied", "kinds", "fused", "channels", "lbfgs"):
        assert (first[name], second[name]) == (True, True), name
    for told in (first, second):
        shards, beside, both = told["remembers"]
        assert shards == [False, [4.0] * 4, ""]  # whole: no object says how it lay on the ranks
        assert beside[:2] == [False, [4.0] * 3]
        assert both[:2] == [True, [4.0] * 4]
        for *_, said in (beside, both):
            assert "Counts.each shares its numbers with a weight of the object 'model'" in said
    assert first["start over"] == [1, 1]
    assert first["replaced"] == [[3, 2, "by hand, Events.EPOCH_COMPLETED"]]
    assert first["kept"] == [[2, 3, 5], [2]]
    # Shards are written by each save; under DDP, rank 0 shares the file of frozen weights.
    assert first["shares"] == second["shares"] == [[True, 3, 3], [True, 3, 1]]
    # The byte is in rank 1's part: rank 0 alone would not have seen it.
    assert first["passed over"] == second["passed over"] == [0, 2]
    assert "is damaged: its checksum" in results[0].stderr
    assert "(as rank 1 on " in results[0].stderr

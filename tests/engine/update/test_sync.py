"""When ranks talk: on two of them, over gloo."""

import re
from pathlib import Path

import pytest
import torch

from camshaft import Update
from camshaft.engine.update.sync import Sync

SCRIPT = Path(__file__).parents[2] / "distributed" / "updates_on_ranks.py"


def test_a_model_on_one_rank_has_nothing_to_average():
    assert Sync.of(None, "last") is None
    assert Sync.of(torch.nn.Linear(1, 1), "last") is None
    assert Sync.of(torch.nn.Linear(1, 1), "close") is None


def test_unknown_ways_and_shards_that_cannot_be_averaged_by_hand_are_refused():
    class Sharded(torch.nn.Linear):
        def set_requires_gradient_sync(self, flag):
            self.flag = flag

    model = Sharded(1, 1)
    with pytest.raises(ValueError, match="sync='never': needs one of 'last', 'each', 'close'"):
        Sync.of(model, "never")
    with pytest.raises(ValueError, match="it is for DistributedDataParallel"):
        Update(torch.optim.SGD(model.parameters(), lr=0.1), model=model, sync="close")
    sync = Sync.of(torch.compile(model, backend="eager"), "last")
    assert sync.model is model
    with sync.off():
        assert model.flag is False
    assert model.flag is True
    assert Sync.of(model, "each") is None


def test_on_two_ranks_gradients_are_averaged_once_a_window_and_right(processes):
    results = processes.run_ranks(2, SCRIPT)
    names = re.findall(r"^    (\w+),$", SCRIPT.read_text(), re.MULTILINE)
    assert len(names) >= 11
    for name in names:
        assert all(f": {name}\n" in each.stdout for each in results), name

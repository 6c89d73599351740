"""When ranks talk: on two of them, over gloo."""

import re
from pathlib import Path

import pytest
import torch

from camshaft import State, Update

SCRIPT = Path(__file__).parents[2] / "distributed" / "updates_on_ranks.py"


def updates(module, **options):
    return Update(torch.optim.SGD(module.parameters(), lr=0.1), **options)


def test_a_model_on_one_rank_has_nothing_to_average():
    model = torch.nn.Linear(1, 1)
    assert updates(model).sync is None
    assert updates(model, model=model).sync is None
    assert updates(model, model=model, sync="close").sync is None


def test_unknown_ways_and_shards_that_cannot_be_averaged_by_hand_are_refused():
    class Sharded(torch.nn.Linear):
        def set_requires_gradient_sync(self, flag):
            self.flag = flag

    model, state = Sharded(1, 1), State(iteration=1, epoch_length=4)
    with pytest.raises(ValueError, match="sync='never': needs one of 'last', 'each', 'close'"):
        updates(model, sync="never")
    with pytest.raises(ValueError, match="it is for DistributedDataParallel"):
        updates(model, model=model, sync="close")
    compiled = torch.compile(model, backend="eager")
    with updates(model, model=compiled, accumulate=2).micro_batch(state):
        assert model.flag is False
    assert model.flag is True
    assert updates(model, model=model, sync="each").sync is None


def test_on_two_ranks_gradients_are_averaged_once_a_window_and_right(processes):
    results = processes.run_ranks(2, SCRIPT)
    names = re.findall(r"^    (\w+),$", SCRIPT.read_text(), re.MULTILINE)
    assert len(names) >= 12
    for name in names:
        assert all(f": {name}\n" in each.stdout for each in results), name

"""A script that runs in stages, each with data of its own, and is killed in one of them."""

from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from camshaft import Engine, Events, Update
from camshaft.handlers.checkpoint import Checkpoint


def script(directory, fail_at=None):
    """Three stages of two epochs of three batches; the batches, the weight, the next number."""
    model = nn.Linear(1, 1)
    nn.init.ones_(model.weight)
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=1e-3), {}
    update = Update(optimizer)

    def step(state, batch):
        if state.iteration == fail_at:
            raise KeyboardInterrupt
        seen[state.iteration] = batch.tolist()
        update(state, model(batch).sum() * torch.rand(()))

    engine = Engine(step, update, objects={"model": model, "optimizer": optimizer})
    often = Events.ITERATION_COMPLETED | Events.EPOCH_COMPLETED(last=True)
    engine.add(Checkpoint(directory, when=often, resume=True, background=False))
    state = None
    for stage in range(3):
        data = DataLoader(torch.arange(6.0)[:, None] + 100 * stage, 2, shuffle=True)
        state = engine.run(data, max_epochs=2 * stage + 2, state=state)
    return seen, model.weight.item(), torch.rand(3).tolist()


@pytest.mark.parametrize(  # in and between the epochs of each stage
    "fail_at", [10, *(pytest.param(each, marks=pytest.mark.slow) for each in (5, 8, 15))]
)
def test_an_epoch_of_a_later_stage_is_not_read_from_the_data_of_an_earlier_one(tmp_path, fail_at):
    torch.manual_seed(0)
    whole, weight, number = script(tmp_path / "whole")
    torch.manual_seed(0)
    with suppress(KeyboardInterrupt):
        script(tmp_path / "runs", fail_at)
    torch.manual_seed(1)
    rest = {iteration: batch for iteration, batch in whole.items() if iteration >= fail_at}
    assert script(tmp_path / "runs") == (rest, weight, number)

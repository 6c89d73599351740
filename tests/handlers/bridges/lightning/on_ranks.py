"""A LightningModule on two ranks, beside a supervised engine on the same data."""

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from camshaft import Update, ranks, supervised
from camshaft.handlers.bridges.lightning import from_lightning

GENERATOR = torch.Generator().manual_seed(1)
BATCHES = [(torch.randn(8, 3, generator=GENERATOR), torch.ones(8, 1)) for _ in range(5)]


def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


class Small(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = layers()

    def forward(self, inputs):
        return self.layers(inputs)

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        self.log("mean", inputs.mean(), on_epoch=True)
        self.log("most", inputs.max(), on_step=False, on_epoch=True, reduce_fx="max")
        return nn.functional.mse_loss(self(inputs), targets)

    def validation_step(self, batch, batch_idx):
        self.log("validated", batch[0].mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


with ranks.process_group():
    own = [(inputs[ranks.rank() :: 2], targets[ranks.rank() :: 2]) for inputs, targets in BATCHES]
    module = Small()
    engine = from_lightning(DistributedDataParallel(module), accumulate=2)
    state = engine.run(own, max_epochs=2)

    model = DistributedDataParallel(layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update = Update(optimizer, model=model, accumulate=2)
    other = supervised(model, update, nn.functional.mse_loss)
    assert other.run(own, max_epochs=2).step == state.step == 6
    for one, another in zip(module.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, another)
    weights = [each.tolist() for each in module.parameters()]
    assert ranks.gathered(weights) == [weights, weights]

    inputs = torch.cat([each for each, _ in BATCHES])
    assert abs(state.metrics["mean_epoch"] - inputs.mean()) < 1e-6
    assert state.metrics["most"] == inputs.max()

    passes = []
    engine = from_lightning(wrapped := DistributedDataParallel(Small()))
    wrapped.register_forward_pre_hook(lambda *_: passes.append(ranks.rank()))
    engine.run(own[:2], max_epochs=1)
    engine.evaluate(own[ranks.rank() :])  # ranks with unlike many batches do not meet in each
    assert len(passes) == 2

    with pytest.raises(ValueError, match=r"from_lightning\(DistributedDataParallel\(module\)\)"):
        from_lightning(Small()).run(own, max_epochs=1)

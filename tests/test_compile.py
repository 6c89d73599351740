"""Models compiled by torch.compile: what Camshaft does makes no new graphs once all is seen."""

import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Events, Update, checkpoint_activations, supervised
from camshaft.handlers import Checkpoint, ClipGradNorm, Validate

cross_entropy = torch.nn.functional.cross_entropy


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()
    counters.clear()


class Net(torch.nn.Module):
    """A frozen BatchNorm, one that is not, and dropout: what a mode changes."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.frozen = torch.nn.BatchNorm1d(8).eval()
        self.norm = torch.nn.BatchNorm1d(8)
        self.dropout = torch.nn.Dropout(0.5)
        self.last = torch.nn.Linear(8, 3)

    def forward(self, input):
        return self.last(self.dropout(self.norm(self.frozen(self.first(input)))))


def outside(model):
    return torch.compile(model, backend="aot_eager")


def in_place(model):
    model.compile(backend="aot_eager")
    return model


def parts(model):
    model.first = torch.compile(model.first, backend="aot_eager")
    return model


def recomputed(model):
    checkpoint_activations(model, "norm", "last")
    return torch.compile(model, backend="aot_eager")


def by_supervised(model, optimizer):
    return supervised(model, optimizer, cross_entropy, accumulate=2)


def in_bf16(model, optimizer):
    return supervised(model, optimizer, cross_entropy, precision="bf16")


def by_hand(model, optimizer):
    update = Update(optimizer)

    def step(state, batch):
        loss = cross_entropy(model(batch[0]), batch[1])
        if state.training:
            update(state, loss)

    return Engine(step, objects={"model": model, "optimizer": optimizer})


WAYS = [
    (in_place, by_supervised),
    (outside, by_hand),
    (parts, in_bf16),
    (recomputed, by_hand),
]


@pytest.mark.quick(build=1)
@pytest.mark.parametrize(("compiled", "build"), WAYS)
def test_from_the_second_epoch_on_nothing_is_compiled(compiled, build, tmp_path):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(23, 4), torch.randint(3, (23,)))
    model = compiled(Net())
    engine = build(model, torch.optim.SGD(model.parameters(), lr=0.1))
    engine.add(
        ClipGradNorm(1.0),
        Validate(DataLoader(data, 7)),  # its last batch is short too
        Validate(DataLoader(data, 5), name="mid", when=Events.ITERATION_COMPLETED(every=3)),
        Checkpoint(tmp_path),
    )
    graphs = []
    engine.on(Events.EPOCH_COMPLETED)(
        lambda state: graphs.append(counters["stats"]["unique_graphs"])
    )
    engine.run(DataLoader(data, 5, shuffle=True), max_epochs=4)
    engine.evaluate(DataLoader(data, 5))
    assert graphs[0] > 1
    assert graphs[1:] == graphs[:1] * 3
    assert counters["stats"]["unique_graphs"] == graphs[0]

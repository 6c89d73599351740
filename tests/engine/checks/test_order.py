"""Training data in the order of their classes: told of after the first epoch."""

import warnings

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Update, loader, supervised

CLASSES = torch.arange(4).repeat_interleave(13)


def train(data, *, own=False):
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, cross_entropy)
    if own:
        update = Update(optimizer)

        def step(state, batch):
            update(state, cross_entropy(model(batch[0]), batch[1]))

        engine = Engine(step, update, objects={"model": model})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        engine.run(data, max_epochs=3)
    return [str(each.message) for each in told]


def samples(classes):
    return TensorDataset(torch.randn(len(classes), 3), classes)


@pytest.mark.parametrize("own", [False, True], ids=["supervised", "own step"])
def test_an_epoch_that_begins_with_one_class_and_ends_with_another_is_told_of_once(own):
    (said,) = train(DataLoader(samples(CLASSES), 9), own=own)  # the last batch has 7 samples
    assert "first batch are 0, and all of its last one 3: the data come in the order" in said
    assert "loader(..., training=True)" in said


@pytest.mark.parametrize(
    "data",
    [
        DataLoader(samples(CLASSES), 9, shuffle=True),
        loader(samples(CLASSES), batch_size=9, training=True),
        DataLoader(samples(CLASSES[torch.randperm(52)]), 10),
        DataLoader(samples(torch.zeros(40, dtype=torch.long)), 10),
        DataLoader(samples(torch.tensor([0] * 6 + [1] * 2)), 2),  # too few to be sure
        [(torch.randn(8, 3), torch.full((8,), each % 2)) for each in range(5)],
        [(torch.randn(8, 3), torch.full((8, 4), each / 5)) for each in range(5)],
    ],
    ids=["shuffled", "loader", "mixed", "one class", "small", "in turn", "no classes"],
)
def test_other_orders_are_not_told_of(data):
    assert not train(data)


def test_an_evaluation_may_read_classes_in_order():
    model = torch.nn.Linear(3, 4)
    engine = supervised(model, loss_fn=cross_entropy)
    engine.evaluate(DataLoader(samples(CLASSES), 10))

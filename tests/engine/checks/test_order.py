"""Training data in the order of their classes, and those of the validation: told of."""

import warnings

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset

from camshaft import Engine, Update, loader, supervised
from camshaft.handlers import Validate

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


class Doubled(torch.utils.data.Dataset):
    """A wrapper with a transform of its own."""

    def __init__(self, subset):
        self.subset = subset

    def __len__(self):
        return len(self.subset)

    def __getitem__(self, index):
        inputs, target = self.subset[index]
        return 2 * inputs, target


ALL = samples(CLASSES[torch.randperm(52)])


def validated(training, evaluation):
    model = torch.nn.Linear(3, 4)
    engine = supervised(model, torch.optim.SGD(model.parameters(), lr=0.1), cross_entropy)
    engine.add(Validate(evaluation))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        engine.run(training, max_epochs=2)
    return [str(each.message) for each in told]


@pytest.mark.parametrize(
    ("training", "evaluation"),
    [
        (DataLoader(Subset(ALL, range(40)), 9), DataLoader(Subset(ALL, torch.arange(39, 52)), 9)),
        (
            DataLoader(Doubled(Subset(ALL, range(40))), 9),
            DataLoader(ALL, 9, sampler=SubsetRandomSampler(range(39, 52))),
        ),
        (
            loader(Subset(ALL, range(40)), batch_size=9, training=True),
            DataLoader(Subset(Subset(ALL, range(30, 52)), range(9, 22)), 9),
        ),
    ],
    ids=["subsets", "wrapper and sampler", "loader and nested"],
)
def test_samples_that_are_trained_on_and_evaluated_are_told_of_once(training, evaluation):
    (said,) = validated(training, evaluation)
    assert said.startswith("1 of the 13 samples of the evaluation are also trained on, so that")


def test_parts_of_one_split_all_of_the_training_and_other_data_are_not_told_of():
    part, rest = torch.utils.data.random_split(ALL, [40, 12])
    other = Subset(samples(CLASSES[torch.randperm(52)]), range(30, 52))
    for evaluation in (rest, part, Subset(part, range(9)), ALL, other):
        assert not validated(DataLoader(part, 9), DataLoader(evaluation, 9))
    assert not validated([(torch.randn(8, 3), CLASSES[::7][:8])], DataLoader(rest, 9))

"""Losses whose mean over an evaluation is not that over samples: told, with the line to write."""

import warnings
from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader

from camshaft import count_tokens, supervised


@pytest.mark.filterwarnings("ignore:.torch.jit")  # deprecated, which torch 2.14 says otherwise
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_scripted_loss_is_checked_by_its_reduction(reduction):
    scripted = torch.jit.script(torch.nn.MSELoss(reduction=reduction))
    model = torch.nn.Linear(2, 1)
    data = [(torch.ones(4, 2), torch.ones(4, 1))]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        engine = supervised(model, torch.optim.SGD(model.parameters()), scripted)
        assert engine.run(data, max_epochs=1).step == 1
        expected = mse_loss(model(data[0][0]), data[0][1], reduction=reduction).item()
        assert engine.evaluate(data).metrics["loss"].item() == pytest.approx(expected)
    assert ["is a sum" in str(each.message) for each in told] == [True] * (reduction == "sum")


class Identity(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.scale * x


def evaluated(data, **arguments):
    model = Identity()
    engine = supervised(model, loss_fn=mse_loss, **arguments)
    return float(engine.evaluate(data).metrics["loss"])


def pairs(*sizes):
    """Whose squares are 1, and in the last batch 10."""
    last = len(sizes) - 1
    value = (1.0, 10**0.5)
    return [
        (torch.full(size, value[number == last]), torch.zeros(size))
        for number, size in enumerate(sizes)
    ]


def test_targets_with_time_first_are_told_of_with_the_line_to_write():
    data = pairs((7, 8, 2), (7, 2, 2))
    with pytest.warns(UserWarning, match=r"are \[7, 8\], and of the last one \[7, 2\].*weight="):
        assert evaluated(data) == pytest.approx(5.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = pytest.approx((8 + 2 * 10) / 10)
        assert evaluated(data, weight=lambda output: output.target.numel()) == right
        assert evaluated(data, weight=lambda output: output.target.shape[1]) == right


def by_time(samples):
    return tuple(torch.stack(each, dim=1) for each in zip(*samples, strict=True))


def test_a_loader_says_which_dimension_is_that_of_samples():
    samples = [(torch.ones(5, 1), torch.zeros(5, 1)) for _ in range(10)]
    with pytest.warns(UserWarning, match=r"are \[5, 4\], and of the last one \[5, 2\]"):
        evaluated(DataLoader(samples, 4, collate_fn=by_time))
    evaluated(DataLoader(samples, 5, collate_fn=by_time))  # no batch is smaller
    evaluated(DataLoader(samples, 4))  # [4, 5], [4, 5], [2, 5]


@pytest.mark.parametrize(
    "sizes",
    [
        [(4, 9), (4, 9), (2, 9)],  # samples first, all of one length
        [(4, 9), (4, 7), (4, 5)],  # of unlike lengths
        [(4, 9), (2, 7)],
        [(4, 7), (2, 9)],
        [(35, 4), (35, 4), (12, 4)],  # a long text, cut in time
        [(4,), (2,)],
        [(7, 2)],
    ],
    ids=str,
)
def test_targets_with_samples_first_are_never_told_of(sizes):
    evaluated(pairs(*sizes))


def test_padded_batches_of_a_loader_with_samples_first_are_never_told_of():
    samples = [torch.ones(length) for length in (9, 8, 9, 9, 5, 6, 4, 3)]

    def padded(batch):
        inputs = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)
        return inputs, torch.zeros_like(inputs)

    evaluated(DataLoader(samples, 4, collate_fn=padded))  # [4, 9], [4, 6]
    evaluated(DataLoader(samples, batch_sampler=[[0, 1, 2, 3], [4, 5, 6, 7]], collate_fn=padded))
    evaluated(DataLoader(samples, 4, collate_fn=padded), weight=count_tokens)


CLASS_WEIGHTS = torch.tensor([1.0, 5.0, 2.0], dtype=torch.float64)


def of_classes(output):
    return CLASS_WEIGHTS[output.target].sum()


@pytest.mark.parametrize("options", [{"split": 2}, {"accumulate": 2}])
@pytest.mark.parametrize(
    ("loss_fn", "target", "weight", "says"),
    [
        (torch.nn.CrossEntropyLoss(CLASS_WEIGHTS), [0, 0, 1, 2], of_classes, "weights of their cl"),
        (
            partial(cross_entropy, weight=CLASS_WEIGHTS),
            [0, 1, 1, 2],
            of_classes,
            "weights of their",
        ),
        (cross_entropy, [0, -100, 1, 2], count_tokens, r"not -100.*weight=count_tokens"),
    ],
)
def test_parts_of_a_step_that_count_otherwise_than_in_one_batch_are_told_with_what_to_write(
    loss_fn, target, weight, says, options
):
    inputs = torch.eye(4, 3, dtype=torch.float64)

    def trained(**arguments):
        model = torch.nn.Linear(3, 3, bias=False).double()
        torch.nn.init.eye_(model.weight)
        engine = supervised(
            model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn, **arguments
        )
        size = 2 if "accumulate" in arguments else 4
        engine.run(
            DataLoader([*zip(inputs, torch.tensor(target), strict=True)], size), max_epochs=1
        )
        return model.weight.detach()

    whole = trained()
    with pytest.warns(UserWarning, match=says):
        assert (trained(**options) - whole).abs().max() > 1e-4
    assert (trained(**options, weight=weight) - whole).abs().max() < 1e-12


def test_parts_with_targets_that_all_count_alike_are_not_told_of():
    model = torch.nn.Linear(3, 3)
    for loss_fn, target in [
        (cross_entropy, torch.tensor([0, 1, 2, 1])),
        (torch.nn.CrossEntropyLoss(CLASS_WEIGHTS.float()), torch.eye(4, 3)),  # over samples
        (torch.nn.MultiMarginLoss(weight=CLASS_WEIGHTS.float()), torch.tensor([0, 1, 2, 1])),
    ]:
        engine = supervised(model, torch.optim.SGD(model.parameters()), loss_fn, split=3)
        engine.run([(torch.eye(4, 3), target)], max_epochs=1)


def contrastive(output, _):
    return cross_entropy(output @ output.T, torch.arange(len(output)))


def dice_of_the_batch(output, target):
    return 1 - (output.softmax(1) * target).sum() / target.sum()


def own_sum(output, target):
    return ((output - target) ** 2).sum()


def by_own_weights(output, target):
    return cross_entropy(output, target.argmax(1), weight=CLASS_WEIGHTS.float())


def own_mean(output, target):
    return ((output - target) ** 2).sum() / len(output) + output.abs().mean(1).mean()


def of_drawn_samples(output, target):
    return (output[torch.rand(len(output)).argmax()] ** 2).mean()


class OwnSum(torch.nn.Module):
    def forward(self, prediction, target):
        return own_sum(prediction, target)


@pytest.mark.parametrize(
    "loss_fn", [contrastive, dice_of_the_batch, own_sum, by_own_weights, OwnSum()]
)
def test_a_loss_function_that_is_no_mean_over_samples_is_told_of_with_split(loss_fn):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 3)
    engine = supervised(model, torch.optim.SGD(model.parameters()), loss_fn, split=2)
    target = torch.eye(3)[[0, 1, 2, 1]] * torch.tensor([[1.0], [1.0], [2.0], [1.0]])
    with pytest.raises(UserWarning, match="not that of the whole batch"):  # where it is an error
        engine.run([(torch.randn(4, 3), target)], max_epochs=1)


@pytest.mark.parametrize("loss_fn", [own_mean, of_drawn_samples, torch.nn.SmoothL1Loss()])
def test_a_mean_over_samples_is_not_told_of_with_split_and_nothing_is_drawn(loss_fn):
    inputs, target = torch.ones(4, 3), torch.eye(4, 3)

    def drawn(data, **arguments):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 3)
        engine = supervised(model, torch.optim.SGD(model.parameters()), loss_fn, **arguments)
        engine.run(data, max_epochs=1)
        return torch.rand(())

    halves = [*zip(inputs.split(2), target.split(2), strict=True)]  # as many calls of the loss
    assert torch.equal(drawn([(inputs, target)], split=2), drawn(halves))


KEPT = []


def keep(target):
    KEPT.append(len(target))


def keeps_by_another_function(prediction, target):
    keep(target)
    return own_sum(prediction, target)


def keeps_in_a_tensor(prediction, target, queue=torch.zeros(1)):
    queue.add_(1)
    return own_sum(prediction, target)


class KeepsInAPart(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.queue = Queue()

    def forward(self, prediction, target):
        return self.queue(own_sum(prediction, target))


class Queue(torch.nn.Module):
    def forward(self, loss):
        keep(loss[None])
        return loss


@pytest.mark.parametrize("loss_fn", [keeps_by_another_function, keeps_in_a_tensor, KeepsInAPart()])
def test_a_loss_that_keeps_what_it_has_had_is_called_no_further_times(loss_fn):
    KEPT.clear()
    keeps_in_a_tensor.__defaults__[0].zero_()
    model = torch.nn.Linear(3, 1)
    engine = supervised(model, torch.optim.SGD(model.parameters()), loss_fn, split=2)
    engine.run([(torch.ones(4, 3), torch.ones(4, 1))], max_epochs=1)
    assert len(KEPT) + keeps_in_a_tensor.__defaults__[0] == 2


def test_a_loss_whose_ignore_index_is_none_trains_in_parts():
    def loss_fn(prediction, target, ignore_index):
        return cross_entropy(prediction, target)

    model = torch.nn.Linear(3, 3)
    engine = supervised(
        *(model, torch.optim.SGD(model.parameters()), partial(loss_fn, ignore_index=None)),
        accumulate=2,
    )
    engine.run([(torch.eye(3), torch.arange(3))] * 2, max_epochs=1)

"""Losses that are computed of what they do not take: told at the first step, and only these."""

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from camshaft import Engine, Update, supervised

CLASSES = torch.tensor([0, 1, 2, 1])
SHARES = torch.tensor([[0.2, 0.3, 0.5]] * 4)
MASK = torch.ones(2, 2)
SQUARE = torch.eye(4)
NUMBERS = torch.tensor([0.5, 1.0, 0.0, 1.0])


PAIR = torch.tensor([2, 2, 2])
KERNEL = torch.arange(12.0).view(3, 4, 1)


def ctc(scores, target):
    """Of one sample of four places, with two targets."""
    return functional.ctc_loss(scores, target, torch.tensor([4]), torch.tensor([2]))


def convolved(scores):
    return functional.conv1d(scores.view(1, 4, 4), KERNEL)


class Mul(torch.autograd.Function):
    """Is named as one of torch's."""

    @staticmethod
    def forward(ctx, values, factor):
        return values * factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient.sum(1, keepdim=True), None


def told(loss_of, target, recwarn, outputs=3):
    """What is told of a loss of a linear model's outputs, in a supervised and in an own step."""
    found = []
    for is_own in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, outputs)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if is_own:
            update = Update(optimizer)
            engine = Engine(lambda state, batch: update(state, loss_of(model(batch[0]), batch[1])))  # noqa: B023
            engine.add(update)
        else:
            engine = supervised(model, optimizer, loss_of)
        engine.run([(torch.randn(4, 3), target)] * 2, max_epochs=1)
        found.append([str(each.message) for each in recwarn])
        recwarn.clear()
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    ("loss_of", "target", "outputs", "says"),
    [
        (
            lambda p, t: functional.nll_loss((p.softmax(0) + 1e-8).log(), t),
            *(CLASSES, 3, "logarithms of shares of the batch"),
        ),
        (
            lambda p, t: functional.binary_cross_entropy_with_logits(p.relu(), t),
            *(SHARES, 3, "scores from a ReLU"),
        ),
        (lambda p, t: ctc(p.view(4, 1, 3), t), *(CLASSES[1:3], 3, "ctc_loss takes logarithms")),
        (
            lambda p, t: ctc(p.view(4, 1, 3).log_softmax(1), t),
            *(CLASSES[1:3], 3, "along dimension 1"),
        ),
        (
            lambda p, t: functional.cross_entropy(p.view(1, 4, 3).view(1, 3, 4), t[None]),
            *(CLASSES, 3, "from [1, 4, 3] to [1, 3, 4]"),
        ),
        (
            lambda p, t: functional.cross_entropy(convolved(p).view(-1, 3), t),
            *(CLASSES, 4, "from [1, 3, 4] to [4, 3]"),
        ),
        (
            lambda p, t: functional.cross_entropy(p.softmax(1), t),
            CLASSES,
            3,
            "softmax of a softmax",
        ),
        (
            lambda p, t: functional.cross_entropy(p.softmax(1).view(2, 2, 3).mT, t.view(2, 2)),
            *(CLASSES, 3, "softmax of a softmax"),
        ),
        (functional.nll_loss, CLASSES, 3, "takes logarithms"),
        (lambda p, t: functional.nll_loss(p.softmax(1), t), CLASSES, 3, "takes logarithms"),
        (
            lambda p, t: functional.kl_div(p.softmax(1), t, reduction="batchmean"),
            *(SHARES, 3, "kl_div takes logarithms"),
        ),
        (
            lambda p, t: (
                functional.cross_entropy(p / 2, t)
                + 4 * functional.kl_div((p / 2).softmax(1).view(-1), t.view(-1), reduction="sum")
            ),
            *(SHARES, 3, "kl_div takes logarithms"),
        ),
        (
            lambda p, t: functional.binary_cross_entropy_with_logits(p.sigmoid().squeeze(1), t),
            *(NUMBERS, 1, "sigmoid of probabilities"),
        ),
        (lambda p, t: ((p - t) ** 2).mean(), NUMBERS, 1, r"shape [4, 1] and targets of shape [4]"),
        (
            lambda p, t: (t[:, None] - p.squeeze(1)).abs().mean() + 0.1 * p.square().mean(),
            *(NUMBERS, 1, r"shape [4] and targets of shape [4, 1]"),
        ),
        (  # masks of two by two
            lambda p, t: (p[..., None, None] * MASK * t[:, None, None].expand(4, 2, 2)).mean(),
            *(NUMBERS, 1, r"shape [4, 1, 2, 2] and targets of shape [4, 2, 2]"),
        ),
        (functional.hinge_embedding_loss, 2 * (NUMBERS > 0.6) - 1, 1, "each prediction with each"),
        (functional.poisson_nll_loss, NUMBERS, 1, "each prediction with each"),
        (functional.cross_entropy, torch.zeros(4, dtype=torch.long), 1, "softmax of one score"),
        (
            lambda p, t: (p.log_softmax(-1) * t).sum(-1).mean(),
            *(torch.ones(4, 1), 1, "shape [4, 1] it is always 1"),
        ),
        (lambda p, t: functional.nll_loss(p.log_softmax(0), t), CLASSES, 3, "shares of the batch"),
        (
            lambda p, t: functional.binary_cross_entropy_with_logits(p.squeeze(1), t),
            *(2 * NUMBERS - 1, 1, "got numbers from -1 to 1"),
        ),
        (
            lambda p, t: functional.binary_cross_entropy_with_logits(p.squeeze(1), t),
            *(255 * NUMBERS, 1, "target / 255"),
        ),
        (
            lambda p, t: functional.soft_margin_loss(p.squeeze(1), t),
            *((NUMBERS > 0.6).float(), 1, "labels of -1 and 1, and got labels from 0 to 1"),
        ),
    ],
)
def test_a_loss_of_what_it_does_not_take_is_told_once(loss_of, target, outputs, says, recwarn):
    messages = told(loss_of, target, recwarn, outputs)
    assert len(messages) == 1
    assert says in messages[0]


@pytest.mark.parametrize(
    ("loss_of", "target", "outputs"),
    [
        (functional.cross_entropy, CLASSES, 3),
        (lambda p, t: functional.nll_loss(p.softmax(1).log(), t), CLASSES, 3),
        (lambda p, t: ctc(p.log_softmax(1).view(1, 4, 3).transpose(0, 1), t), CLASSES[1:3], 3),
        (lambda p, t: functional.cross_entropy(p.view(1, 4, 3).mT, t[None]), CLASSES, 3),
        (lambda p, t: functional.cross_entropy(p.view(2, 2, 3).view(4, 3), t), CLASSES, 3),
        (  # a layer of 2 * 3 scores, first taken as [3, 2]
            lambda p, t: functional.cross_entropy(p.view(4, 3, 2).view(4, 2, 3), t[:, None] % PAIR),
            *(CLASSES, 6),
        ),
        (lambda p, t: functional.cross_entropy(convolved(p), t[None]), CLASSES, 4),
        (lambda p, t: functional.cross_entropy(convolved(p).mT.reshape(-1, 3), t), CLASSES, 4),
        (lambda p, t: functional.nll_loss(p.T.log_softmax(0).T, t), CLASSES, 3),
        (lambda p, t: functional.soft_margin_loss(p.squeeze(1), 2 * t - 1), NUMBERS, 1),
        (  # the soft labels of a discriminator
            lambda p, t: functional.binary_cross_entropy_with_logits(p[:, 0], 1.3 * t - 0.1),
            *(NUMBERS, 1),
        ),
        (lambda p, t: functional.cross_entropy(p.log_softmax(1), t), CLASSES, 3),
        (lambda p, t: functional.nll_loss(p.log_softmax(1), t), CLASSES, 3),
        (lambda p, t: functional.kl_div(p.log_softmax(1), t, reduction="sum"), SHARES, 3),
        (lambda p, t: -(p.softmax(1) * t).sum(1).mean(), SHARES, 3),  # the expected reward
        (lambda p, t: (t - 0.5 * p.softmax(1)).square().sum(), SHARES, 3),
        (lambda p, t: functional.nll_loss((p.softmax(1) + 1e-9).log(), t), CLASSES, 3),
        (lambda p, t: functional.binary_cross_entropy_with_logits(p[:, 0], t), NUMBERS, 1),
        (lambda p, t: functional.mse_loss(p.squeeze(1), t), NUMBERS, 1),
        (lambda p, t: ((p.squeeze(1) - t) ** 2).mean(), NUMBERS, 1),
        (lambda p, t: (p[:, 0, None] - t).abs().mean(), NUMBERS, 1),  # each with each, on purpose
        (lambda p, t: (p - t[:, None]).abs().mean(), NUMBERS, 4),  # four quantiles of four samples
        (lambda p, t: (p[:, 0, None] - p[:, 0]).abs().mean(), NUMBERS, 1),  # a ranking
        (lambda p, t: (p.exp() * (t[:, None] >= t)).sum(1).log().mean(), NUMBERS, 1),  # of Cox
        (lambda p, t: (p[:, 0] + (t[:, None] >= t).log()).exp().sum(1).log().mean(), NUMBERS, 1),
        (lambda p, t: (p[:, 0] - 1e9 * (t[:, None] < t)).exp().sum(1).log().mean(), NUMBERS, 1),
        (lambda p, t: (p.square().sum(1, True) + t.square().sum(1)).exp().mean(), SQUARE, 4),
        # Four samples of four classes by their distances from fixed centers
        (lambda p, t: functional.cross_entropy((p - NUMBERS).square().neg(), t), CLASSES, 1),
        (lambda p, t: (Mul.apply(p, SQUARE) - t).mean(), SQUARE, 1),
    ],
)
def test_a_loss_of_what_it_takes_is_not_told_of(loss_of, target, outputs, recwarn):
    assert told(loss_of, target, recwarn, outputs) == []


def test_a_pair_that_is_said_to_be_meant_is_not_told_of(recwarn):
    rows, columns = (
        lambda p, t: (t[:, None] - p.squeeze(1)).abs().mean(),
        lambda p, t: (p - t).abs().mean(),
    )
    assert "prediction[None]" in told(rows, NUMBERS, recwarn, 1)[0]
    assert "prediction.squeeze(1)[:, None]" in told(columns, NUMBERS, recwarn, 1)[0]
    assert told(lambda p, t: rows(p[None], t), NUMBERS, recwarn, 1) == []
    assert told(lambda p, t: columns(p.squeeze(1)[:, None], t), NUMBERS, recwarn, 1) == []


@pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "unpack_hook"), reason="torch tells of no hook"
)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_loss_in_a_checkpointed_function_is_computed_again_once_a_step(accumulate):
    calls = []

    def part(p, t):
        calls.append(p)
        return (p.exp() * t).sum() / accumulate

    def loss_of(p, t):
        return checkpoint(part, p, t, use_reentrant=False)

    model = torch.nn.Linear(3, 1)
    update = Update(torch.optim.SGD(model.parameters(), lr=0.1), accumulate=accumulate)
    engine = Engine(lambda state, batch: update(state, loss_of(model(batch[0]), batch[1])))
    engine.add(update).run([(torch.randn(4, 3), SQUARE)] * 4, max_epochs=1)
    assert len(calls) == 2 * 4

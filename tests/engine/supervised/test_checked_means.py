"""Losses whose mean over an evaluation is not that over samples: told, with the line to write."""

import warnings
from functools import partial

import pytest
import torch
from torch.nn.functional import binary_cross_entropy, cross_entropy, mse_loss
from torch.utils.data import DataLoader

from camshaft import count_tokens, supervised
from camshaft.handlers import Validate


def kl(mu, log_variance):
    return -0.5 * torch.sum(1 + log_variance - mu.pow(2) - log_variance.exp())


def vae_loss(output, target):
    """That of PyTorch's example: a sum over samples, pixels and latent dimensions."""
    made, mu, log_variance = output
    return binary_cross_entropy(made, target, reduction="sum") + kl(mu, log_variance)


class VAE(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 4)
        self.outer = torch.nn.Linear(2, 6)

    def forward(self, x):
        mu, log_variance = self.inner(x).chunk(2, -1)
        return self.outer(mu).sigmoid(), mu, log_variance


def images(*sizes):
    generator = torch.Generator().manual_seed(3)
    return [(x, x) for x in (torch.rand(size, 6, generator=generator) for size in sizes)]


def scaled(scale, loss_fn):
    return lambda output, target: scale * loss_fn(output, target)


class Divided(torch.nn.Module):
    """Adds up squares by a module inside."""

    def __init__(self, by):
        super().__init__()
        self.squares, self.by = torch.nn.MSELoss(reduction="sum"), by

    def forward(self, output, target):
        return self.squares(output[0], target) / (len(target) if self.by else 1)


SUMS = {
    "vae": vae_loss,
    "partial": partial(lambda scale, output, target: scale * vae_loss(output, target), 2.0),
    "function inside": lambda output, target: vae_loss(output, 1 * target),
    "function in a closure": scaled(2, vae_loss),
    "module inside": Divided(by=False),
    "squares": lambda output, target: ((output[0] - target) ** 2).sum(),
}
MEANS = {
    "divided": lambda output, target: vae_loss(output, target) / len(target),
    "sum of features": lambda output, target: ((output[0] - target) ** 2).sum(-1).mean(),
    "module divides": Divided(by=True),
    "mean": lambda output, target: mse_loss(output[0], target),
    "contrastive": lambda output, target: (
        cross_entropy(output[0] @ target.T, torch.arange(len(target)), reduction="sum")
        / len(target)
    ),
    "norm of all": lambda output, target: ((output[0] - target) ** 2).sum().sqrt(),
    "of one kind": lambda output, target: 0 * output[0].sum() + mse_loss(output[0], target),
}


def vae(loss_fn, **arguments):
    torch.manual_seed(0)
    model = VAE()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    return supervised(model, optimizer, loss_fn, **arguments)


@pytest.mark.parametrize("loss_fn", SUMS.values(), ids=SUMS)
def test_a_function_that_adds_up_samples_is_told_of_once_with_the_line_to_write(loss_fn):
    engine = vae(loss_fn)
    engine.add(Validate(images(4, 3)))
    with pytest.warns(UserWarning, match=r"adds up.* / len\(target\), or say weight=1") as caught:
        engine.run(images(4, 2), max_epochs=2)
    assert caught[0].filename == __file__
    assert len(caught) == 1


def test_divided_as_told_the_mean_over_samples_is_right_and_nothing_is_told():
    engine, data = vae(lambda o, target: vae_loss(o, target) / len(target)), images(4, 3)
    model = engine.objects["model"]
    expected = sum(vae_loss(model(x), x) for x, _ in data) / 7
    assert torch.allclose(engine.evaluate(data).metrics["loss"], expected.double())
    vae(vae_loss, weight=1).evaluate(data)


@pytest.mark.parametrize("loss_fn", MEANS.values(), ids=MEANS)
def test_means_are_never_told_of(loss_fn):
    for sizes in ((4, 3), (4, 4), (3,), (2, 1)):
        vae(loss_fn).evaluate(images(*sizes))


def test_the_check_of_a_sum_draws_no_number_and_does_not_touch_the_output():
    def noisy(output, target):
        output[0].mul_(2)
        return (output[0] * torch.rand(())).sum() / len(target)

    drawn = []
    for name in (noisy, lambda output, target: (output[0].mul_(2) * torch.rand(())).mean()):
        torch.manual_seed(1)
        engine = vae(name)
        state = engine.evaluate(images(4, 3), seed=5)
        drawn.append((state.output.prediction[0].clone(), float(state.metrics["loss"])))
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert drawn[0][1] == pytest.approx(6 * drawn[1][1])


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


def test_a_loss_that_remembers_is_not_called_again():
    class Centers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("centers", torch.zeros(()))
            self.seen = []

        def forward(self, output, target):
            self.centers += 1  # which the evaluation puts back
            self.seen.append(self.centers.item())
            return ((output[0] - target) ** 2).sum()

    loss_fn = Centers()
    vae(loss_fn).evaluate(images(4, 3))
    assert loss_fn.seen == [1, 2]


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

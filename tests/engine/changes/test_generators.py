"""Random generators that a run's objects hold and its functions reach: resumed, and left alone."""

import random
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, Dataset

from camshaft import Engine, Events, Update, supervised
from camshaft.engine.changes import generators_of_run
from camshaft.handlers import Checkpoint, find_lr

from . import jittering as helpers


class NoisyModel(nn.Module):
    """A model with a generator in an inner module."""

    def __init__(self):
        super().__init__()
        self.linear, self.noise = nn.Linear(4, 1), Noise()

    def forward(self, input):
        return self.linear(self.noise(input))


class Noise(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, input):
        return input + torch.randn(input.shape, generator=self.generator)


class NoisySGD(torch.optim.SGD):
    """An optimizer that adds noise to gradients from its own generator."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr)
        self.rng = numpy.random.default_rng(3)

    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                each.grad += float(self.rng.standard_normal())
        return super().step(closure)


class Transform:
    def __init__(self):
        self.rng = random.Random(3)

    def __call__(self, value):
        return value * self.rng.random()


class Samples(Dataset):
    """A data set whose transform, deeper than an attribute, has a generator."""

    def __init__(self):
        self.transform = Transform()

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return self.transform(torch.ones(4)), torch.ones(1)


def with_a_model():
    model = NoisyModel()
    return supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss), model, BATCHES


def with_an_optimizer():
    model = nn.Linear(4, 1)
    return supervised(model, NoisySGD(model.parameters(), 0.1), mse_loss), model, BATCHES


def with_a_step():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    update, rng = Update(optimizer), numpy.random.default_rng(3)
    nested = {"explore": random.Random(3)}

    def step(state, batch):
        input, target = batch
        factor = float(rng.random()) * nested["explore"].random()
        loss = mse_loss(model(input * factor), target)
        if state.training:
            update(state, loss)
        return loss.detach()

    return Engine(step, objects={"model": model, "optimizer": optimizer}), model, BATCHES


def with_a_loss():
    model, rng = nn.Linear(4, 1), numpy.random.RandomState(3)

    def loss_fn(output, target):
        return mse_loss(output, target + float(rng.rand()))

    return supervised(model, torch.optim.SGD(model.parameters(), 0.1), loss_fn), model, BATCHES


def with_a_handler():
    engine, model, batches = with_a_model()
    noise = torch.Generator().manual_seed(5)

    @engine.on(Events.EPOCH_STARTED)
    def shake(state):
        with torch.no_grad():
            model.linear.bias += torch.rand((), generator=noise)

    return engine, model, batches


def with_data():
    model = nn.Linear(4, 1)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss)
    return engine, model, DataLoader(Samples(), 2, shuffle=True)


class ListModel(NoisyModel):
    """A model with two generators in a list."""

    def __init__(self):
        super().__init__()
        self.rngs = [numpy.random.default_rng(3), numpy.random.default_rng(4)]

    def forward(self, input):
        return self.linear(input + sum(float(each.random()) for each in self.rngs))


def with_a_list():
    model = ListModel()
    return supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss), model, BATCHES


def with_a_hook():
    model, rng = nn.Linear(4, 1), random.Random(3)
    model.register_forward_hook(lambda module, inputs, output: output + rng.random())
    return supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss), model, BATCHES


class Slots:
    __slots__ = ("rng",)

    def __init__(self):
        self.rng = random.Random(3)


def with_slots():
    model, held = nn.Linear(4, 1), Slots()

    def loss_fn(output, target):
        return mse_loss(output, target + held.rng.random())

    return supervised(model, torch.optim.SGD(model.parameters(), 0.1), loss_fn), model, BATCHES


def with_a_module_of_functions():
    model = nn.Linear(4, 1)
    helpers.rng = random.Random(3)

    def loss_fn(output, target):
        return mse_loss(output, target + helpers.jitter())

    return supervised(model, torch.optim.SGD(model.parameters(), 0.1), loss_fn), model, BATCHES


def with_where():
    engine, model, batches = with_a_model()
    rng = random.Random(3)

    @engine.on(Events.ITERATION_COMPLETED(where=lambda state: rng.random() < 0.5))
    def shake(state):
        with torch.no_grad():
            model.linear.bias += 0.1

    return engine, model, batches


class Compose:
    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, value):
        for each in self.transforms:
            value = each(value)
        return value


def with_nested_transforms():
    engine, model, loader = with_data()
    loader.dataset.transform = Compose(Compose(Transform()), Transform())
    return engine, model, loader


def with_what_a_step_calls_by_itself():
    rngs = [numpy.random.default_rng(seed) for seed in range(5)]

    class Shift(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input):
            return input + float(rngs[0].random())

        @staticmethod
        def backward(ctx, gradient):
            return gradient * float(rngs[1].random())

    class Shifted(nn.Linear):
        def forward(self, input):
            return Shift.apply(super().forward(input))

    @torch.no_grad()
    def shake(*_):
        model[0].bias += float(rngs[2].random())

    def scale(weight):
        weight.grad *= float(rngs[4].random())

    model = nn.Sequential(Shifted(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer.register_step_post_hook(shake)
    model[0].bias.register_hook(lambda gradient: gradient * float(rngs[3].random()))
    model[0].weight.register_post_accumulate_grad_hook(scale)
    return supervised(model, optimizer, mse_loss), model, BATCHES


BATCHES = [(torch.ones(2, 4), torch.ones(2, 1))] * 10
OWNERS = [with_a_model, with_an_optimizer, with_a_step, with_a_loss, with_a_handler, with_data]
OWNERS += [with_a_list, with_a_hook, with_slots, with_a_module_of_functions, with_where]
OWNERS += [with_nested_transforms, with_what_a_step_calls_by_itself]


def weights(model):
    return [each.tolist() for each in model.parameters()]


@pytest.mark.quick(owner=6, stop_at=1)
@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("stop_at", [7, 10, 13])
def test_a_run_resumes_to_the_same_bits_whoever_holds_the_generator(
    owner, stop_at, tmp_path, caplog
):
    def run(directory, stop_at=None):
        torch.manual_seed(0)
        engine, model, batches = owner()
        engine.add(Checkpoint(directory, resume=directory.exists()))
        if stop_at:
            engine.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: state.interrupt("test"))
        engine.run(batches, max_epochs=3)
        return weights(model)

    whole = run(tmp_path / "whole")
    assert run(tmp_path / "left", stop_at) != whole
    assert run(tmp_path / "left") == whole
    assert "random generator" not in caplog.text


@pytest.mark.parametrize("owner", OWNERS)
def test_an_evaluation_leaves_their_states_alone(owner):
    def run(evaluates):
        torch.manual_seed(0)
        engine, model, batches = owner()
        if evaluates:
            engine.on(Events.EPOCH_COMPLETED)(lambda state: engine.evaluate(batches, parent=state))
        engine.run(batches, max_epochs=3)
        return weights(model)

    assert run(evaluates=True) == run(evaluates=False)


@pytest.mark.parametrize("owner", [with_a_model, with_an_optimizer, with_a_loss, with_data])
def test_a_search_for_the_learning_rate_leaves_them_alone(owner):
    def run(searches):
        torch.manual_seed(0)
        engine, model, batches = owner()
        if searches:
            find_lr(engine, batches)
        engine.run(batches, max_epochs=1)
        return weights(model)

    assert run(searches=True) == run(searches=False)


def test_wrappers_do_not_change_their_names():
    model = NoisyModel()
    assert list(generators_of_run({"model": model}, [])) == ["model.noise.generator"]
    wrapped = nn.DataParallel(NoisyModel())
    assert list(generators_of_run({"model": wrapped}, [])) == ["model.noise.generator"]


def test_two_functions_may_call_different_generators_by_the_same_name():
    def made(seed):
        rng = random.Random(seed)
        return lambda state: rng.random()

    first, second = made(1), made(2)
    found = generators_of_run({}, [first, second])
    assert [each.getstate() for each in found.values()] == [
        random.Random(1).getstate(),
        random.Random(2).getstate(),
    ]


def test_the_global_generators_and_those_of_the_data_are_left_out():
    shuffle, own = random.shuffle, torch.Generator()
    loader = DataLoader([1], generator=own)

    def step(state, batch):
        shuffle([])
        return own, torch.default_generator, random.SystemRandom(), batch

    assert generators_of_run({"model": SimpleNamespace()}, [step], loader) == {}


def test_a_generator_that_the_other_run_lacks_is_named_in_a_warning(tmp_path, caplog):
    def run(*, noisy, stop_at=None):
        torch.manual_seed(0)
        engine, model, batches = with_a_model()
        if not noisy:
            del model.noise.generator
            model.noise.forward = lambda input: input
        engine.add(Checkpoint(tmp_path, resume=tmp_path.exists() and any(tmp_path.iterdir())))
        if stop_at:
            engine.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: state.interrupt("test"))
        engine.run(batches, max_epochs=3)

    run(noisy=False, stop_at=5)
    assert "random generator" not in caplog.text
    run(noisy=True)
    assert "the random generators model.noise.generator cannot be put back" in caplog.text

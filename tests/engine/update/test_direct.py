"""The short ways to torch's backward pass and optimizer step, left where they are not the same.

Whoever hooks into torch has to be called: hooks, modes, subclasses, schedulers, profilers.
"""

from functools import wraps

import pytest
import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.overrides import TorchFunctionMode

from camshaft import State, Update
from camshaft.engine.update import gradients as direct

OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1, "fused": True},
    "NAdam": {"lr": 0.1, "foreach": True},
    "RMSprop": {"lr": 0.1, "centered": True},
    "Adagrad": {"lr": 0.1},
}


def trained(optimizer, settings, step):
    """The weights and the optimizer's state after some steps of a small model."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    chosen = getattr(torch.optim, optimizer)(model.parameters(), **settings)
    inputs, targets = torch.randn(5, 3), torch.randint(2, (5,))
    for _ in range(4):
        step(chosen, torch.nn.functional.cross_entropy(model(inputs), targets))
    states = [each for state in chosen.state.values() for each in state.values()]
    return [*model.parameters(), *(each for each in states if isinstance(each, torch.Tensor))]


def by_torch(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def by_update(optimizer, loss):
    Update(optimizer)(State(), loss)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_short_ways_change_no_bit(name):
    ours = trained(name, OPTIMIZERS[name], by_update)
    theirs = trained(name, OPTIMIZERS[name], by_torch)
    assert len(ours) == len(theirs)
    assert all(map(torch.equal, ours, theirs))


@pytest.fixture
def weight():
    return torch.nn.Parameter(torch.tensor([1.0, 2.0]))


@pytest.fixture
def optimizer(weight):
    weight.grad = torch.ones(2)
    return torch.optim.SGD([weight], lr=0.5)


def test_the_short_ways_are_taken_with_this_torch(weight, optimizer, monkeypatch):
    """They fall back without a word where a later torch has other insides; here one is told."""
    monkeypatch.setattr(torch.autograd, "_make_grads", None)  # what autograd.backward would call
    direct.backward(weight.sum())
    monkeypatch.setattr(torch.autograd.profiler, "record_function", None)
    direct.step_by(optimizer)
    assert weight.tolist() == [0.0, 1.0]


def test_where_torch_has_other_insides_its_public_calls_are_made(weight, optimizer, monkeypatch):
    monkeypatch.setattr(direct, "HAS_ENGINE", False)
    monkeypatch.setattr(direct, "RUN", None)
    monkeypatch.setattr(direct, "HAS_HOOKS", False)
    monkeypatch.setattr(direct, "IS_PROFILED", None)
    weight.grad = None
    by_update(optimizer, weight.sum())
    assert weight.tolist() == [0.5, 1.5]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("whose", ["own", "global"])
def test_hooks_of_an_optimizer_are_called(optimizer, when, whose):
    ways = {
        ("own", "before"): optimizer.register_step_pre_hook,
        ("own", "after"): optimizer.register_step_post_hook,
        ("global", "before"): register_optimizer_step_pre_hook,
        ("global", "after"): register_optimizer_step_post_hook,
    }
    calls = []
    hook = ways[whose, when](lambda *arguments: calls.append(when))
    direct.step_by(optimizer)
    hook.remove()
    direct.step_by(optimizer)
    assert calls == [when]


def test_a_step_of_ones_own_is_made(weight, optimizer, monkeypatch):
    scheduler = StepLR(optimizer, 1)  # replaces the optimizer's own step, to know that it was made
    direct.step_by(optimizer)
    scheduler.step()  # warns if no step was made, and warnings are errors here
    assert weight.tolist() == [0.5, 1.5]
    made = []

    def step(self):
        made.append(self)

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    other = torch.optim.SGD([weight], lr=0.5)
    direct.step_by(other)
    assert made == [other]


def test_a_function_around_the_step_of_a_class_is_called(optimizer, monkeypatch):
    calls, before = [], torch.optim.SGD.step

    @wraps(before)
    def around(self):
        calls.append(self)
        return before(self)

    monkeypatch.setattr(torch.optim.SGD, "step", around)
    direct.step_by(optimizer)
    assert calls == [optimizer]


def test_an_optimizer_of_ones_own_steps(weight):
    class Halve(Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.mul_(0.5)

    direct.step_by(Halve([weight]))
    assert weight.tolist() == [0.5, 1.0]


def test_a_profile_names_the_optimizer_step(optimizer):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        direct.step_by(optimizer)
    assert "Optimizer.step#SGD.step" in {each.key for each in profile.key_averages()}


def test_a_mode_and_a_subclass_see_the_backward_pass(weight):
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), keywords=None):
            seen.append(function.__name__)
            return function(*arguments, **(keywords or {}))

    class Loss(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            seen.append(f"{function.__name__} of a subclass")
            return super().__torch_function__(function, types, arguments, keywords or {})

    loss = weight.sum()
    with Mode():
        direct.backward(loss)
    assert "backward" in seen
    direct.backward(weight.as_subclass(Loss).sum())
    assert "backward of a subclass" in seen


def test_a_backward_pass_of_ones_own_is_made(weight, monkeypatch):
    called = []

    def backward(self):
        called.append(self)

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    loss = weight.sum()
    direct.backward(loss)
    assert called == [loss]


def test_a_hook_of_the_loss_may_change_its_gradient(weight):
    for _ in range(2):
        loss = weight.sum()
        loss.register_hook(lambda gradient: gradient.mul_(3))
        direct.backward(loss)
    assert weight.grad.tolist() == [6.0, 6.0]


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda weight: 2 * weight, "only for scalar outputs"),
        (lambda weight: weight.detach().sum(), "does not require grad"),
        (lambda weight: weight.to(torch.complex64).sum(), "real scalar outputs|for real"),
    ],
)
def test_what_torch_refuses_is_refused_in_its_words(weight, loss, says):
    with pytest.raises(RuntimeError) as theirs:
        loss(weight).backward()
    with pytest.raises(RuntimeError) as ours:
        direct.backward(loss(weight))
    assert str(ours.value) == str(theirs.value)
    with pytest.raises(RuntimeError) as through_update:
        Update(torch.optim.SGD([weight], lr=0.5))(State(), loss(weight))
    assert str(through_update.value) == str(theirs.value)


def test_a_backward_pass_inside_a_transform_is_refused_as_torch_does(weight):
    def inside(tangent):
        direct.backward((weight * tangent).sum())
        return tangent

    with pytest.raises(RuntimeError, match="inside a functorch transform"):
        torch.func.vmap(inside)(torch.ones(3, 2))


def test_a_backward_pass_of_one_loss_and_of_autograd_are_made(weight, monkeypatch):
    called, before, loss = [], torch.autograd.backward, weight.sum()
    loss.backward = lambda: called.append("of the loss")
    direct.backward(loss)

    def backward(*arguments, **keywords):
        called.append("of autograd")
        before(*arguments, **keywords)

    monkeypatch.setattr(torch.autograd, "backward", backward)
    direct.backward(weight.sum())
    assert called == ["of the loss", "of autograd"]


def test_what_torch_calls_after_a_step_is_called(weight):
    class Counted(torch.optim.SGD):
        steps = 0

        def _optimizer_step_code(self):
            self.steps += 1

    optimizer = Counted([weight], lr=0.5)
    direct.step_by(optimizer)
    assert optimizer.steps == 1

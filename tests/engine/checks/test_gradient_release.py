"""Backward passes that make the step themselves, so that no gradients are left."""

from functools import partial

import pytest
import torch
from torch import nn

from camshaft import Events, Update, supervised
from camshaft.handlers import ClipGradNorm, GradNorm, LRSchedule, NonFiniteGuard
from camshaft.handlers.schedules import linear

DATA = [(torch.randn(4, 4), torch.tensor([0, 1, 0, 1])) for _ in range(4)]
LOSS = nn.functional.cross_entropy


class Released(torch.optim.SGD):
    """One whose step does nothing, since hooks make it for each parameter, as optimi's do."""

    by_data = False

    def step(self, closure=None):
        pass

    @torch.no_grad()
    def step_one(self, weight):
        (weight.data if self.by_data else weight).sub_(weight.grad, alpha=0.1)
        weight.grad = None


class ReleasedByData(Released):
    by_data = True


def build(kind):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    if kind is not torch.optim.SGD:
        optimizer = kind(model.parameters(), 0.1)
        for each in model.parameters():
            each.register_post_accumulate_grad_hook(optimizer.step_one)
        return model, optimizer
    # The recipe of torch's tutorial: an optimizer for each parameter.
    optimizers = {each: kind([each], 0.1) for each in model.parameters()}

    def hook(weight):
        optimizers[weight].step()
        optimizers[weight].zero_grad()

    for each in model.parameters():
        each.register_post_accumulate_grad_hook(hook)
    return model, kind(model.parameters(), 0.1)


KINDS = [Released, ReleasedByData, torch.optim.SGD]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("handler", [partial(ClipGradNorm, 1.0), partial(NonFiniteGuard, "skip")])
def test_a_handler_that_has_no_gradients_to_act_on_is_told(kind, handler):
    model, optimizer = build(kind)
    engine = supervised(model, optimizer, LOSS).add(handler())
    name = handler.func.__name__
    with pytest.warns(UserWarning, match=rf"gradient release\).*no effect: {name}") as told:
        engine.run(DATA, max_epochs=2)
    assert len(told) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_windows_and_scalers_of_such_a_backward_pass_are_an_error(kind):
    model, optimizer = build(kind)
    with pytest.raises(RuntimeError, match=r"gradient release\).*no effect: accumulate="):
        supervised(model, optimizer, LOSS, accumulate=2).run(DATA, max_epochs=1)
    model, optimizer = build(kind)
    update = Update(optimizer, scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(RuntimeError, match=r"gradient release\).*the gradient scaler"):
        supervised(model, update, LOSS, precision="fp16").run(DATA, max_epochs=1)


@pytest.mark.parametrize("kind", KINDS)
def test_such_a_run_is_told_nothing_where_nothing_is_lost(kind):
    model, optimizer = build(kind)
    weight = model.weight.detach().clone()
    supervised(model, optimizer, LOSS).add(LRSchedule(linear())).run(DATA, max_epochs=1)
    assert not torch.equal(model.weight, weight)


def test_a_hook_that_looks_and_a_part_without_gradients_are_told_nothing():
    torch.manual_seed(0)
    model = nn.ModuleDict({"used": nn.Linear(4, 2), "unused": nn.Linear(4, 2)})
    seen = []
    for each in model.parameters():
        each.register_post_accumulate_grad_hook(lambda weight: seen.append(weight.grad.norm()))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.forward = model["used"].forward
    engine = supervised(model, optimizer, LOSS, accumulate=2)
    engine.add(ClipGradNorm(1.0), GradNorm(name="before"), NonFiniteGuard("skip"))
    engine.on(Events.GRADIENTS_READY)(lambda state: None)
    engine.run(DATA, max_epochs=1)
    assert seen

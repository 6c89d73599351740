"""Optimizers that compute the loss again in a step, although their `step` has a default for it."""

import pytest
import torch
from torch import nn

from camshaft import Engine, Update
from camshaft.handlers import ClipGradNorm, GradNorm, NonFiniteGuard


class Sam(torch.optim.SGD):
    """Sharpness-aware minimisation, Foret et al. (2021): the gradient is that of a higher place."""

    by_data, evaluates_first = False, False

    @torch.no_grad()
    def step(self, closure=None):
        if closure is None:
            raise RuntimeError("SAM requires a closure")
        if self.evaluates_first:
            with torch.enable_grad():
                closure()
        weights = [each for group in self.param_groups for each in group["params"]]
        before = [each.clone() for each in weights]
        for each in weights:
            (each.data if self.by_data else each).add_(each.grad, alpha=0.1)
            if not self.by_data:
                each.grad = None
        with torch.enable_grad():
            loss = closure()
        for each, old in zip(weights, before, strict=True):
            each.copy_(old)
        super().step()
        return loss


class SamByData(Sam):
    by_data = True


class SamThatRests(torch.optim.SGD):
    """One that drops the first gradients even where it moves no weight, as LookSAM does."""

    @torch.no_grad()
    def step(self, closure=None):
        self.zero_grad()
        with torch.enable_grad():
            closure()
        super().step()


class SamThatBegins(Sam):
    """One that computes the first gradient by the closure, too, as WSAM does."""

    evaluates_first = True


class ByLoss(torch.optim.SGD):
    """The size of a step is that of the loss, as in AliG: it is asked for once, at the weights."""

    @torch.no_grad()
    def step(self, closure=None):
        with torch.enable_grad():
            loss = closure()
        for group in self.param_groups:
            group["lr"] = float(loss) / 10
        super().step()


DATA = [(torch.randn(4, 4), torch.randn(4, 1)) for _ in range(4)]
LOSS = nn.functional.mse_loss


def build(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.Linear(4, 1))
    return model, kind(model.parameters(), 0.1)


def by_update(kind, *handlers, accumulate=1, again=None, **settings):
    model, optimizer = build(kind)
    update, calls = Update(optimizer, accumulate=accumulate, **settings), []

    def step(state, batch):
        def closure():
            calls.append(state.iteration)
            return LOSS(model(batch[0]), batch[1])

        update(state, closure(), closure=again(closure) if again else closure)

    Engine(step, update, *handlers, objects={"model": model, "optimizer": optimizer}).run(
        DATA, max_epochs=2
    )
    return [each.detach().clone() for each in model.parameters()], len(calls)


def by_hand(kind, window=1):
    model, optimizer = build(kind)
    calls = 0
    for start in [*range(0, len(DATA), window)] * 2:

        def closure(batches=tuple(DATA[start : start + window])):
            nonlocal calls
            optimizer.zero_grad()
            total = 0.0
            for inputs, targets in batches:
                loss = LOSS(model(inputs), targets) / len(batches)
                loss.backward()
                total, calls = total + loss.detach(), calls + 1
            return total

        if kind in (Sam, SamByData, SamThatRests):
            closure()
        optimizer.step(closure)
    return [each.detach().clone() for each in model.parameters()], calls


@pytest.mark.parametrize("kind", [Sam, SamByData, SamThatRests, SamThatBegins, ByLoss])
def test_a_closure_makes_the_step_of_a_loop_with_as_many_evaluations(kind):
    (weights, calls), (expected, hand_calls) = by_update(kind), by_hand(kind)
    assert all(map(torch.equal, weights, expected))
    assert calls == hand_calls


@pytest.mark.parametrize("kind", [Sam, SamThatBegins, ByLoss])
def test_a_window_is_computed_again_as_a_whole(kind):
    (weights, calls), (expected, hand_calls) = by_update(kind, accumulate=2), by_hand(kind, 2)
    for one, other in zip(weights, expected, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-6)  # divided after the sum, not before
    assert calls == hand_calls


def test_a_closure_that_makes_the_backward_pass_is_an_error():
    def of_a_loop(closure):
        def again():
            closure().backward()

        return again

    with pytest.raises(TypeError, match=r"computes the loss again and returns it.*returned None"):
        by_update(Sam, again=of_a_loop)

    def with_a_loss(closure):
        def again():
            loss = closure()
            loss.backward(retain_graph=True)
            return loss

        return again

    with pytest.raises(TypeError, match=r"leaves zero_grad\(\) and backward\(\) to the Update"):
        by_update(Sam, again=with_a_loss)


def test_what_acts_on_the_first_gradients_alone_is_told():
    with pytest.warns(UserWarning, match=r"ClipGradNorm changes the gradients before the step of"):
        by_update(Sam, ClipGradNorm(1.0))
    by_update(Sam, GradNorm(), NonFiniteGuard("skip"))  # the batch is the same
    by_update(ByLoss, ClipGradNorm(1.0))  # which uses the clipped gradients


def test_an_update_that_cannot_give_a_closure_says_so():
    with pytest.raises(ValueError, match="works neither with a gradient scaler"):
        by_update(Sam, scaler=torch.amp.GradScaler("cpu"))
    model = nn.Linear(4, 1)
    update = Update([Sam([model.weight], 0.1), torch.optim.SGD([model.bias], 0.1)])

    def step(state, batch):
        update(state, model(batch[0]).mean(), closure=lambda: model(batch[0]).mean())

    with pytest.raises(ValueError, match="nor for several optimizers of one step"):
        Engine(step, update).run(DATA, max_epochs=1)


def test_micro_batches_without_a_closure_beside_others_are_an_error():
    model, optimizer = build(Sam)
    update = Update(optimizer, accumulate=2)

    def step(state, batch):
        loss = LOSS(model(batch[0]), batch[1])
        update(state, loss, closure=(lambda: loss) if state.iteration == 1 else None)

    with pytest.raises(ValueError, match="or a closure="):
        Engine(step, update).run(DATA, max_epochs=1)


def test_an_optimizer_of_torch_steps_as_without_the_closure():
    _, calls = by_update(torch.optim.AdamW, scaler=torch.amp.GradScaler("cpu"))
    assert calls == 2 * len(DATA)

"""Optimizers that hold others: resumed to the last bit, or refused at the first save."""

import pytest
import torch
from torch.optim import SGD, Adam, Optimizer

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import Checkpoint, latest

KEEP = {"when": Events.ITERATION_COMPLETED(every=3), "keep": latest(20)}


def data():
    generator = torch.Generator().manual_seed(4)
    return [(torch.randn(4, 3, generator=generator), torch.ones(4, 1)) for _ in range(5)]


class Inherits(Optimizer):
    """Steps several optimizers; saves only what torch's own class knows of."""

    def __init__(self, *inner):
        self.inner = list(inner)
        super().__init__([p for each in inner for g in each.param_groups for p in g["params"]], {})

    def step(self, closure=None):
        for each in self.inner:
            each.step()


class Several(Inherits):
    """Saves the state of each by its number, as many do."""

    def state_dict(self):
        return {str(number): each.state_dict() for number, each in enumerate(self.inner)}

    def load_state_dict(self, saved):
        for number, each in enumerate(self.inner):
            each.load_state_dict(saved[str(number)])


class PutsBackOne(Several):
    def load_state_dict(self, saved):
        self.inner[0].load_state_dict(saved["0"])


class Fails(Several):
    def load_state_dict(self, saved):
        Optimizer.load_state_dict(self, saved)


class Own(SGD):
    """One of a library's, with a count of its own in its groups."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["calls"] = group.get("calls", 0) + 1
        return super().step(closure)


class KnowsOthers(Own):
    """Refers to itself and to a class, neither of which is a part of it."""

    def __init__(self, params):
        super().__init__(params, 0.1, momentum=0.9)
        self.base, self.outer = SGD, self


class Casts(Optimizer):
    """Keeps sums in float64, which torch's `load_state_dict` makes those of its parameters."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state["sum"] = state.get("sum", 0) + p.grad.double()
            p.data.add_(state["sum"].float(), alpha=-0.1)


def build(kind, *handlers):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    if issubclass(kind, Inherits):
        first = SGD(model[0].parameters(), 0.1, momentum=0.9)
        optimizer = kind(first, Adam(model[2].parameters(), 0.01))
    else:
        optimizer = kind(model.parameters())
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    return engine.add(*handlers), model


def weights(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()])


@pytest.mark.parametrize("kind", [Several, Own, KnowsOthers])
def test_an_optimizer_that_holds_others_is_saved_and_resumed_to_the_last_bit(kind, tmp_path):
    engine, model = build(kind)
    engine.run(data(), max_epochs=2)
    first, _ = build(kind, Checkpoint(tmp_path, resume=True, **KEEP))
    first.run(data(), max_epochs=1)
    second, resumed = build(kind, Checkpoint(tmp_path, resume=True, **KEEP))
    assert second.run(data(), max_epochs=2).iteration == 10
    assert torch.equal(weights(resumed), weights(model))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Inherits, r"Inherits, .*loading, inner\[0\].state.* is not what.*inner\[0\] \(a SGD\)"),
        (PutsBackOne, r"a PutsBackOne, .*after loading, 1.state"),
        (Fails, r"a Fails, .*fails with its own state_dict\(\) \(KeyError"),
        (Casts, r"a Casts, .*after loading, state.0.sum is not what it was"),
    ],
)
def test_what_could_not_be_put_back_is_refused_at_the_first_save(kind, says, tmp_path):
    engine, _ = build(kind, Checkpoint(tmp_path, resume=True, **KEEP))
    with pytest.raises(TypeError, match=says):
        engine.run(data(), max_epochs=2)
    assert [*tmp_path.glob("iteration*")] == []


def test_the_parts_named_apart_are_saved_and_resumed(tmp_path):
    def made(*handlers):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
        one = SGD(model[0].parameters(), 0.1, momentum=0.9)
        other = Adam(model[1].parameters(), 0.01)
        update = Update(Several(one, other))

        def step(state, batch):
            update(state, model(batch[0]).square().mean())

        objects = {"model": model, "both": update.optimizer, "one": one, "other": other}
        return Engine(step, update, *handlers, objects=objects), model

    engine, model = made()
    engine.run(data(), max_epochs=2)
    made(Checkpoint(tmp_path, resume=True))[0].run(data(), max_epochs=1)
    second, resumed = made(Checkpoint(tmp_path, resume=True))
    second.run(data(), max_epochs=2)
    assert torch.equal(weights(resumed), weights(model))


def test_a_state_of_another_form_than_the_saved_one_is_listed(tmp_path):
    build(Several, Checkpoint(tmp_path))[0].run(data(), max_epochs=1)
    other, _ = build(Own, Checkpoint(tmp_path, resume=True))
    with pytest.raises(
        ValueError, match=r"(?s)'optimizer' is of another class.*reset=\['optimizer'\]"
    ):
        other.run(data(), max_epochs=2)
    again, _ = build(Own, Checkpoint(tmp_path, resume=True, reset=["optimizer"]))
    assert again.run(data(), max_epochs=2).epoch == 2


def test_the_try_changes_nothing_of_the_run(tmp_path):
    ends = []
    for handlers in ((), (Checkpoint(tmp_path, **KEEP),)):
        engine, model = build(Several, *handlers)
        engine.run(data(), max_epochs=2)
        ends.append((weights(model), torch.rand(())))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]

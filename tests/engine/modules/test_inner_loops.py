"""Inner loops that need gradients in an evaluation, as those of MAML, leave no trace."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad
from torch.nn.functional import mse_loss

from camshaft import Engine, Events, Update, unwrap
from camshaft.handlers import Average, Checkpoint, Validate

RATE = 0.05


class Net(nn.Module):
    """With everything that an evaluation might leave a trace in."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(1, 8), nn.BatchNorm1d(8)
        self.dropout, self.last = nn.Dropout(0.2), nn.Linear(8, 1)

    def forward(self, input):
        return self.last(self.dropout(self.norm(self.first(input)).tanh()))


def tasks(seed, count):
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.rand(count, 20, 1, generator=draw) * 10 - 5
    shifts = torch.rand(count, 1, 1, generator=draw)
    return list(zip(inputs, (inputs + shifts).sin(), strict=True))


TRAINING, TESTING = tasks(1, 4), tasks(2, 3)


def parts_of(task):
    inputs, targets = task
    return (inputs[:10], targets[:10]), (inputs[10:], targets[10:])


def outer_loss(model, task):
    """MAML's loss: one step on the first half, the loss of the second half through that step."""
    (inputs, targets), (others, wanted) = parts_of(task)
    weights = dict(model.named_parameters())
    loss = mse_loss(functional_call(model, weights, (inputs,)), targets)
    gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    pairs = zip(weights.items(), gradients, strict=True)
    moved = {name: weight - RATE * each for (name, weight), each in pairs}
    return mse_loss(functional_call(model, moved, (others,)), wanted)


def by_autograd(model, task):
    with torch.enable_grad():
        return outer_loss(model, task).detach()


def by_functions(model, task):
    (inputs, targets), (others, wanted) = parts_of(task)

    def loss(weights):
        return mse_loss(functional_call(model, weights, (inputs,)), targets)

    weights = dict(model.named_parameters())
    gradients = grad(loss)(weights)  # no_grad around it does not matter to it
    moved = {name: weight - RATE * gradients[name] for name, weight in weights.items()}
    return mse_loss(functional_call(model, moved, (others,)), wanted)


def on_a_copy(model, task, mode=False):
    (inputs, targets), (others, wanted) = parts_of(task)
    learner = copy.deepcopy(unwrap(model)).train(mode)
    optimizer = torch.optim.SGD(learner.parameters(), RATE)
    with torch.enable_grad():
        optimizer.zero_grad()
        mse_loss(learner(inputs), targets).backward()
        optimizer.step()
    return mse_loss(learner.eval()(others), wanted)


def on_a_copy_in_training_mode(model, task):
    return on_a_copy(model, task, True)


FORMS = [by_autograd, by_functions, on_a_copy, on_a_copy_in_training_mode]


def build(accumulate, adapted_loss, *handlers):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    update = Update(optimizer, accumulate=accumulate)

    def train_step(state, task):
        update(state, loss := outer_loss(model, task))
        state.metrics["loss"] = loss.detach()

    def evaluate_step(state, task):
        state.metrics["loss"] = adapted_loss(model, task)

    objects = {"model": model, "optimizer": optimizer}
    engine = Engine(train_step, update, evaluate=evaluate_step, objects=objects)
    engine.add(Average("loss", weight=1))
    when = Events.STARTED | Events.ITERATION_COMPLETED(every=3) | Events.COMPLETED
    return engine.add(Validate(TESTING, when=when), *handlers), model


def bits(model):
    return [each.tolist() for each in model.state_dict().values()], torch.get_rng_state().tolist()


def by_hand(accumulate):
    """Three epochs without an evaluation."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(3):
        for number, task in enumerate(TRAINING, 1):
            (outer_loss(model, task) / accumulate).backward()
            if number % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
    return model


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_an_inner_loop_in_an_evaluation_changes_no_bit_of_the_training(form, accumulate):
    model = by_hand(accumulate)
    expected = bits(model)
    losses = [form(model.eval(), task).item() for task in TESTING]
    engine, trained = build(accumulate, form)
    state = engine.run(TRAINING, max_epochs=3)
    assert bits(trained) == expected
    assert all(each.grad is None for each in trained.parameters())
    if form is not on_a_copy_in_training_mode:  # which draws dropout's numbers
        assert float(state.metrics["val/loss"]) == sum(losses) / len(losses)


def test_the_three_forms_without_dropout_adapt_alike():
    model = Net().eval()
    for task in TESTING:
        first, *others = [form(model, task).item() for form in FORMS[:3]]
        assert others == pytest.approx([first] * 2, rel=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_a_run_with_inner_loops_is_resumed_to_the_last_bit(form, tmp_path):
    def run(directory, stop_at=None):
        when = Events.ITERATION_COMPLETED(every=2)
        engine, model = build(2, form, Checkpoint(tmp_path / directory, when=when, resume=True))
        if stop_at is not None:
            engine.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda s: 1 / 0)
        state = engine.run(TRAINING, max_epochs=3)
        return *bits(model), float(state.metrics["val/loss"])

    with pytest.raises(ZeroDivisionError):
        run("parts", stop_at=7)
    assert run("parts") == run("whole")


def test_an_inner_loop_on_the_model_itself_in_an_open_window_is_an_error():
    def on_the_model(model, task):
        with torch.enable_grad():
            loss = mse_loss(model(task[0]), task[1])
            loss.backward()
        return loss.detach()

    engine, _ = build(2, on_the_model)
    with pytest.raises(RuntimeError, match="changed the gradients of an open accumulation window"):
        engine.run(TRAINING, max_epochs=1)

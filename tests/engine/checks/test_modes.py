"""A model that a handler leaves in evaluation mode trains on in training mode, and that is told."""

import copy
import logging
import warnings

import pytest
import torch
from torch import nn

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import Freeze, Validate

BATCHES = [(torch.arange(6.0).reshape(3, 2), torch.ones(3, 1))] * 3
LEFT = "by a .eval() that nothing undid"


def make():
    torch.manual_seed(0)
    parts = nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 1)
    return nn.Sequential(*parts)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


def weights(model):
    return [each.tolist() for each in model.state_dict().values()]


def loop(epochs=3, sample=lambda model: model.eval()):
    model = make()
    optimizer = sgd(model)
    for _ in range(epochs):
        model.train()
        for input, target in BATCHES:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(input), target).backward()
            optimizer.step()
        sample(model)
    return weights(model)


def own(model, named=True):
    optimizer = sgd(model)
    update = Update(optimizer)

    def step(state, batch):
        update(state, nn.functional.mse_loss(model(batch[0]), batch[1]))

    return Engine(step, objects={"model": model, "optimizer": optimizer} if named else None)


ENGINES = {
    "supervised": lambda model: supervised(model, sgd(model), nn.functional.mse_loss),
    "own": own,
    "own, unnamed": lambda model: own(model, named=False),
}


@pytest.mark.parametrize("kind", ENGINES)
def test_a_model_that_is_sampled_after_the_epoch_trains_as_in_a_loop(kind, caplog):
    model = make()
    engine = ENGINES[kind](model)

    @engine.on(Events.EPOCH_COMPLETED)
    def sample(state):
        model.eval()

    engine.run(BATCHES, max_epochs=3)
    assert weights(model) == loop()
    (told,) = [each.getMessage() for each in caplog.records if LEFT in each.getMessage()]
    name = "model" if kind == "own, unnamed" else "objects['model']"
    assert told.startswith(f"{name} is in evaluation mode after the batches of epoch 1, by a .eval")
    assert "Write .train() after what needs evaluation mode" in told


def test_a_wrapped_model_gets_its_mode_back_and_is_named_once(caplog):
    wrapped = nn.DataParallel(make())
    engine = own(wrapped, named=False)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    engine.objects.update(model=wrapped.module, optimizer=optimizer)
    engine.on(Events.EPOCH_COMPLETED)(lambda state: wrapped.eval() and None)
    modes = []
    engine.on(Events.ITERATION_STARTED)(
        lambda s: modes.append([m.training for m in wrapped.modules()])
    )
    engine.run(BATCHES[:1], max_epochs=2)
    assert modes == [[True] * 6] * 2
    assert "objects['model'] is in evaluation mode after" in caplog.text


def test_also_in_a_run_that_is_carried_on(caplog):
    model = make()
    engine = ENGINES["own"](model)
    engine.on(Events.EPOCH_COMPLETED)(lambda state: model.eval() and None)
    state = engine.run(BATCHES, max_epochs=2)
    model.train()  # as a process that is started again makes it
    engine.run(BATCHES, state=state, max_epochs=3)
    assert weights(model) == loop()


def test_in_the_middle_of_an_epoch_it_is_told_and_ends_with_the_epoch(caplog):
    model = make()
    engine = ENGINES["own"](model)
    modes = []
    engine.on(Events.ITERATION_STARTED)(lambda state: modes.append(model.training))
    engine.on(Events.ITERATION_COMPLETED(at=1))(lambda state: model.eval() and None)
    engine.run(BATCHES, max_epochs=2)
    assert modes == [True, False, False, True, True, True]
    assert "objects['model'] is in evaluation mode at the last batch of epoch 1" in caplog.text
    caplog.clear()
    model.train()
    engine.run(BATCHES, max_epochs=1)
    assert caplog.text.count(LEFT) == 1


@pytest.mark.parametrize("ends", ["by a limit", "by an interruption"])
@pytest.mark.parametrize("when", [Events.ITERATION_COMPLETED(at=1), Events.COMPLETED])
def test_a_run_that_ends_inside_an_epoch_tells_of_its_batches_alone(ends, when, caplog):
    model = make()
    engine = ENGINES["own"](model)
    engine.on(when)(lambda state: model.eval() and None)
    if ends == "by an interruption":
        engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: state.stop("", resumable=True))
    engine.run(BATCHES, max_iterations=2 if ends == "by a limit" else 3)
    told = "objects['model'] is in evaluation mode at the last batch of epoch 1"
    assert (told in caplog.text) == (when != Events.COMPLETED)


def test_modes_of_parts_that_the_script_chose_stay(caplog):
    model = make()
    model[1].eval()  # a frozen BatchNorm
    engine = ENGINES["own"](model)
    modes = []

    @engine.on(Events.EPOCH_COMPLETED)
    def after(state):
        if state.epoch == 2:
            model[2].eval()  # no dropout from then on
        sample = copy.deepcopy(model).eval()
        sample(BATCHES[0][0])

    @engine.on(Events.ITERATION_STARTED)
    def look(state):
        modes.append([each.training for each in model.modules()])

    engine.run(BATCHES[:1], max_epochs=4)
    first, later = [True, True, False, True, True], [True, True, False, False, True]
    assert modes == [first, first, later, later]
    engine.on(Events.EPOCH_COMPLETED)(lambda state: model.eval() and None)
    engine.run(BATCHES[:1], max_epochs=6)
    assert modes[4:] == [later] * 6
    assert caplog.text.count(LEFT) == 1


@pytest.mark.parametrize("kind", ["trains in eval", "from the third epoch", "freeze"])
def test_what_is_right_is_not_told_of(kind, caplog):
    caplog.set_level(logging.WARNING)
    model, ema, expected = make(), make(), [True] * 4
    optimizer = sgd(model)
    update = Update(optimizer)

    def step(state, batch):
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        if state.training:
            update(state, loss)
            ema(batch[0])

    engine = Engine(step, objects={"model": model, "optimizer": optimizer})
    modes = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: modes.append(model.training))
    engine.add(Validate(BATCHES))
    if kind == "trains in eval":
        model.eval()
        engine.on(Events.EPOCH_COMPLETED)(lambda state: model.eval() and None)
        expected = [False] * 4
        warnings.filterwarnings("ignore", message=".*as training starts")
    if kind == "from the third epoch":
        engine.on(Events.EPOCH_STARTED(at=3))(lambda state: model.eval() and None)
        expected = [True, True, False, False]
    if kind == "freeze":
        engine.add(Freeze("1.*", until=Events.EPOCH_COMPLETED(at=2)))

    @engine.on(Events.EPOCH_COMPLETED)
    def sample(state):
        ema.eval()
        if kind == "freeze":
            model.eval()
            model(BATCHES[0][0])
            model.train()

    engine.run(BATCHES[:1], max_epochs=4)
    assert modes == expected
    assert LEFT not in caplog.text


def test_a_model_that_begins_in_evaluation_mode_is_told_of_unless_the_step_sets_modes():
    model = make().eval()
    with pytest.warns(UserWarning, match=r"^objects\['model'\] is in evaluation mode as training"):
        own(model).run(BATCHES, max_epochs=1)
    with pytest.warns(UserWarning, match="^model is in evaluation mode as training"):
        own(model, named=False).run(BATCHES, max_epochs=1)
    update, teacher = Update(sgd(model)), make().eval()

    class Agent:
        def step(self, state, batch):
            self.prepare()
            update(state, nn.functional.mse_loss(model(batch[0]), teacher(batch[0])))

        def prepare(self):
            model.train()

    objects = {"model": model, "teacher": teacher.requires_grad_(False)}
    Engine(Agent().step, objects=objects).run(BATCHES, max_epochs=2)


def test_a_step_of_code_without_a_module_trains():
    model = make()
    scope = {"update": Update(sgd(model)), "model": model}
    code = "def step(state, batch): update(state, (model(batch[0]) - batch[1]).square().mean())"
    exec(code, scope)  # as a notebook server or a configuration may do
    assert scope["step"].__module__ is None
    engine = Engine(scope["step"], scope["update"], objects={"model": model})
    assert engine.run(BATCHES, max_epochs=1).step == 3


class Proxy:
    """An object with an attribute of any name, as of a remote service."""

    def __getattr__(self, name):
        return Proxy() if not name.startswith("__") else super().__getattribute__(name)


def test_a_proxy_that_the_step_reaches_is_taken_for_no_optimizer():
    service = Proxy()
    assert Engine(lambda state, batch: service.log).run([1, 2], max_epochs=1).iteration == 2

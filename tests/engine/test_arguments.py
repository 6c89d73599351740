"""Calls with the wrong arguments: the error says what to write."""

import inspect
import pickle
from dataclasses import replace
from enum import Enum

import pytest
import torch
from torch import nn

import camshaft
from camshaft import Engine, Events, Update, handlers, supervised
from camshaft.handlers import EMA, Checkpoint, EarlyStopping, LRSchedule, Validate, best

MODEL = nn.Linear(2, 1)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)
LOADER = [torch.ones(3, 2)]


def step(state, batch):
    return None


class Half:
    def state_dict(self):
        return {}


def trained(**given):
    return supervised(MODEL, OPTIMIZER, nn.functional.mse_loss, **given)


SCHEDULER = torch.optim.lr_scheduler.StepLR(OPTIMIZER, 1)
OBJECTS = 'write Engine(step, objects={"model": model, "optimizer": optimizer})'
EVERY = "write when=Events.EPOCH_COMPLETED(every=2)"
KEEP = 'write keep=latest(3) | best(1, "val/loss", mode="min")'
CASES = [
    (lambda e: Engine(step, objects=[MODEL]), "objects= got a list; it needs a name for each: Eng"),
    (lambda e: Engine(step, objects=MODEL), "objects= got a Linear; it needs a name for each"),
    (lambda e: Engine(step, objects={"a": 3.0}), "objects['a'] is 3.0, which no checkpoint can ho"),
    (lambda e: Engine(step, objects={"a": nn.Linear}), "objects['a'] is the class Linear, which n"),
    (lambda e: Engine(step, objects={"a": Half()}), "objects['a'] is a Half, which no checkpoint"),
    (lambda e: Engine(step, objects={1: MODEL}), "objects= has 1 for a name; it needs strings"),
    (lambda e: Engine(step, model=MODEL), f"Engine() has no argument 'model'; {OBJECTS}"),
    (lambda e: Engine(), f"Engine() lacks process; {OBJECTS}, with step(state, batch)"),
    (lambda e: Engine(step, handlers=[]), "argument 'handlers'; write engine.add(handler)"),
    (
        lambda e: Engine(MODEL),
        "For a model, an optimizer and a loss, write supervised(mod",
    ),
    (lambda e: Engine(OPTIMIZER), "Engine() got a SGD for its process function, which cannot be"),
    (lambda e: e.run(), "engine.run() lacks data; write engine.run(loader, max_epochs=3)"),
    (
        lambda e: e.run(LOADER, 3),
        "takes 1 positional argument, and got 2; write engine.run(",
    ),
    (lambda e: e.run(epochs=3), "engine.run() has no argument 'epochs'; write max_epochs="),
    (lambda e: e.run(LOADER, max_epoch=3), "no argument 'max_epoch'; write max_epochs="),
    (lambda e: e.run(LOADER, steps=3), "no argument 'steps'; write max_steps="),
    (lambda e: e.run(LOADER, resume=True), "write engine.add(Checkpoint(directory, resume=True))"),
    (lambda e: e.run(LOADER, ckpt_path=""), "write engine.add(Checkpoint(directory, resume=True))"),
    (lambda e: e.run(LOADER, callbacks=[]), "no argument 'callbacks'; write engine.add(handler)"),
    (lambda e: e.run(LOADER, val_loader=[]), "write engine.add(Validate(val_loader))"),
    (
        lambda e: e.run(LOADER, seed=1, batch_size=2),
        "run; engine.run() has no argument 'bat",
    ),
    (lambda e: e.run(LOADER, uneveness=1), "argument 'uneveness'; did you mean 'uneven'?"),
    (lambda e: e.run(LOADER, quux=1), "argument 'quux'; it has data, max_epochs, max_iterations,"),
    (
        lambda e: e.evaluate(LOADER, 3),
        "write engine.evaluate(loader), or engine.evaluate(",
    ),
    (lambda e: e.evaluate(LOADER, steps=3), "has no argument 'steps'; write epoch_length="),
    (lambda e: e.on(Events.STARTED, step), "write @engine.on(event) above the function, or engine"),
    (lambda e: e.on(Events.STARTED, every=2), f"engine.on() has no argument 'every'; {EVERY}"),
    (lambda e: e.off(Events.STARTED, step), "write engine.off(function), which takes it off"),
    (lambda e: e.signal("started"), "got 'started' for an event"),
    (lambda e: e.signal(Events.STARTED(at=1)), "needs an event without conditions"),
    (lambda e: e.simulate(LOADER), "write engine.simulate(max_epochs=2, epoch_length=5)"),
    (lambda e: e.add(step), "the function step is no handler: it needs an attach(engine) method"),
    (lambda e: e.add(Checkpoint), "rather than a class; make one: engine.add(Checkpoint(...))"),
    (lambda e: e.add(SCHEDULER), "for a scheduler, write engine.add(LRSchedule(scheduler))"),
    (lambda e: e.add(OPTIMIZER), "for an optimizer, write Update(optimizer), or supervised(model"),
    (lambda e: e.add(MODEL), f"for a module, {OBJECTS}"),
    (lambda e: e.add(handlers=[]), "engine.add() has no argument 'handlers'; write engine.add(h"),
    (
        lambda e: Events.EPOCH_COMPLETED(5),
        "Events.EPOCH_COMPLETED() takes no positional argum",
    ),
    (lambda e: Events.STARTED(step), "write Events.EPOCH_COMPLETED(every=5), (at=5) or (where="),
    (lambda e: Events.STARTED(event_filter=step), "argument 'event_filter'; write where="),
    (lambda e: trained(criterion=1), "supervised() has no argument 'criterion'; write loss_fn="),
    (lambda e: trained(amp=True), "no argument 'amp'; write precision=\"bf16\""),
    (lambda e: trained(gradient_accumulation_steps=2), "write accumulate="),
    (lambda e: trained(max_epochs=2), "write engine.run(loader, max_epochs=3)"),
    (lambda e: trained(scheduler=1), "write engine.add(LRSchedule(scheduler))"),
    (
        lambda e: camshaft.supervised(MODEL, 1, 2, 3),
        "takes 3 positional arguments, and got 4",
    ),
    (
        lambda e: Update(OPTIMIZER, 4),
        "Update() takes 1 positional argument, and got 2; write Upda",
    ),
    (lambda e: Update(OPTIMIZER, accumulation_steps=4), "write accumulate="),
    (lambda e: Checkpoint(dirpath="d"), "Checkpoint() has no argument 'dirpath'; write directory="),
    (lambda e: Checkpoint("d", save_top_k=3), f"no argument 'save_top_k'; {KEEP}"),
    (lambda e: Checkpoint("d", monitor="loss"), f"no argument 'monitor'; {KEEP}"),
    (lambda e: Checkpoint("d", every_n_epochs=3), f"no argument 'every_n_epochs'; {EVERY}"),
    (lambda e: Checkpoint("d", model=MODEL), f"no argument 'model'; {OBJECTS}"),
    (lambda e: Checkpoint(5), "directory=5: needs the path of a directory"),
    (
        lambda e: Validate(LOADER, name=2),
        "Validate(name=2): needs a name, such as 'val'; write when=",
    ),
    (lambda e: e.add(Checkpoint("d", when=5)), "got 5 for an event"),
    (
        lambda e: EarlyStopping(patience=3),
        "EarlyStopping() lacks metric; write Early",
    ),
    (lambda e: EarlyStopping("loss", delta=3), "no argument 'delta'; write min_delta="),
    (lambda e: LRSchedule(OPTIMIZER, interval="epoch"), f"argument 'interval'; {EVERY}"),
    (lambda e: EMA(beta=0.9), "EMA() has no argument 'beta'; write decay="),
    (lambda e: best("loss"), 'best() lacks metric; write best(1, "val/loss", mode="min")'),
]


@pytest.mark.parametrize(("call", "says"), CASES, ids=range(len(CASES)))
def test_the_error_says_what_to_write(call, says):
    with pytest.raises(TypeError) as error:
        call(Engine(step))
    assert says in str(error.value)
    assert error.value.__cause__ is error.value.__context__ is None


def test_values_of_other_libraries_are_named_too():
    with pytest.raises(ValueError, match="needs one of fp32, bf16, fp16; write precision='bf16'"):
        trained(precision="bf16-mixed")
    with pytest.raises(ValueError, match="^EMA.decay=Linear.*: needs a number from 0"):
        EMA(MODEL)
    with pytest.raises(AttributeError, match="'ModelCheckpoint'; write camshaft.handlers.Chec"):
        _ = handlers.ModelCheckpoint
    with pytest.raises(AttributeError, match="'Trainer'; write supervised"):
        _ = camshaft.Trainer
    with pytest.raises(AttributeError, match="'Chekpoint'; did you mean 'Checkpoint'"):
        _ = handlers.Chekpoint
    assert not hasattr(camshaft, "quux")


def test_an_error_of_the_function_itself_and_right_calls_stay_as_they_are():
    def raising(state, batch):
        return len(3)

    with pytest.raises(TypeError, match=r"^object of type .int. has no len"):
        Engine(raising).run(LOADER, max_epochs=1)
    assert pickle.loads(pickle.dumps(EMA(0.5))).decay == replace(EMA(0.9), decay=0.5).decay
    assert [*inspect.signature(Update).parameters][:2] == ["optimizer", "model"]
    assert "max_epochs" in inspect.signature(Engine.run).parameters
    assert Engine(step, objects=None).objects == {}

    class Mine(EMA):
        pass

    with pytest.raises(TypeError, match=r"EMA\(\) has no argument 'dekay'; did you mean 'decay'"):
        Mine(dekay=0.9)


BY_POSITION = {
    **dict.fromkeys(("supervised", "Output"), "what every reader knows in this order"),
    **dict.fromkeys(("best", "every", "on_rank"), "a sentence: best 3 of a metric, every 2 epochs"),
    **dict.fromkeys(("loader", "LengthBatches", "SeededSamples"), "of the data, and so many"),
    **dict.fromkeys(
        ("Padded", "to_device", "map_tensors", "load_matching", "parameter_groups"),
        "a thing, and what with",
    ),
    **dict.fromkeys(
        ("find_lr", "find_batch_size", "predict"), "(engine, data), as in `engine.run(data)`"
    ),
    **dict.fromkeys(("fetch", "curve", "load_dcp", "export_dcp"), "from where to where"),
    "ShardedStream": "shards, and what reads one, as in `map`",
    "run_config": "as on a command line: a config, and its overrides",
    **dict.fromkeys(
        ("Matching", "LRCurve", "Horizon", "norms_and_biases"), "given to users, not made"
    ),
}
"""What takes more than one argument by position, and why."""


def by_position(function):
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind in kinds]


@pytest.mark.parametrize("room", [camshaft, handlers, handlers.schedules])
def test_all_arguments_after_the_first_go_by_name(room):
    public = {name: getattr(room, name) for name in room.__all__}
    several = {
        name
        for name, each in public.items()
        if callable(each) and not (inspect.isclass(each) and issubclass(each, Enum))
        if len(by_position(each)) > 1
    }
    assert several - BY_POSITION.keys() == set()

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
from camshaft.handlers import EMA, Checkpoint, Validate, schedules

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
CASES = [
    (lambda e: Engine(step, objects=[MODEL]), "objects= got a list; it needs a name for each: Eng"),
    (lambda e: Engine(step, objects=MODEL), "objects= got a Linear; it needs a name for each"),
    (lambda e: Engine(step, objects={"a": 3.0}), "objects['a'] is 3.0, which no checkpoint can ho"),
    (lambda e: Engine(step, objects={"a": nn.Linear}), "objects['a'] is the class Linear, which n"),
    (lambda e: Engine(step, objects={"a": Half()}), "objects['a'] is a Half, which no checkpoint"),
    (lambda e: Engine(step, objects={1: MODEL}), "objects= has 1 for a name; it needs strings"),
    (
        lambda e: Engine(MODEL),
        "For a model, an optimizer and a loss, write supervised(mod",
    ),
    (lambda e: Engine(OPTIMIZER), "Engine() got a SGD for its process function, which cannot be"),
    (lambda e: e.signal("started"), "got 'started' for an event"),
    (lambda e: e.signal(Events.STARTED(at=1)), "needs an event without conditions"),
    (lambda e: e.add(step), "the function step is no handler: it needs an attach(engine) method"),
    (lambda e: e.add(Checkpoint), "rather than a class; make one: engine.add(Checkpoint(...))"),
    (lambda e: e.add(SCHEDULER), "for a scheduler, write engine.add(LRSchedule(scheduler))"),
    (lambda e: e.add(OPTIMIZER), "for an optimizer, write Update(optimizer), or supervised(model"),
    (lambda e: e.add(MODEL), f"for a module, {OBJECTS}"),
    (lambda e: Checkpoint(5), "directory=5: needs the path of a directory"),
    (
        lambda e: Validate(LOADER, name=2),
        "Validate(name=2): needs a name, such as 'val'; write when=",
    ),
    (lambda e: e.add(Checkpoint("d", when=5)), "got 5 for an event"),
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
        ("Matching", "LRCurve", "Horizon", "Scheduled", "norms_and_biases"),
        "given to users, not made",
    ),
}
"""What takes more than one argument by position, and why."""


def by_position(function):
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind in kinds]


@pytest.mark.parametrize("room", [camshaft, handlers, schedules])
def test_all_arguments_after_the_first_go_by_name(room):
    public = {name: getattr(room, name) for name in room.__all__}
    several = {
        name
        for name, each in public.items()
        if callable(each) and not (inspect.isclass(each) and issubclass(each, Enum))
        if len(by_position(each)) > 1
    }
    assert several - BY_POSITION.keys() == set()

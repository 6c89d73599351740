"""Checks of an engine's arguments: process function, objects, handlers and data."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from .. import modules
from ..explain import warn

OBJECTS = 'Engine(step, objects={"model": model, "optimizer": optimizer})'


def objects_of(given: Any) -> dict[str, Any]:
    """The objects of an engine, by name; optimizers without the wrappers of other libraries."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"objects= got {what_is(given)}; it needs a name for each: {OBJECTS}")
    for name, each in given.items():
        if not isinstance(name, str):
            raise TypeError(f"objects= has {what_is(name)} for a name; it needs strings: {OBJECTS}")
        can_be_saved = hasattr(each, "state_dict") and hasattr(each, "load_state_dict")
        if isinstance(each, type) or not can_be_saved:
            raise TypeError(
                f"objects[{name!r}] is {what_is(each)}, which no checkpoint can hold: it needs an "
                "object with state_dict() and load_state_dict(). What a step keeps from batch to "
                "batch is its memory: state.recall(step, Memory)"
            )
    return {name: modules.plain_optimizer(each) for name, each in given.items()}


def refuse_other_process(process: Any) -> None:
    """Refuse a model, an optimizer or data in the place of a process function."""
    forward = getattr(type(process), "forward", None)
    takes_one = forward is not None and forward.__code__.co_argcount == 2
    if takes_one or not callable(process):
        raise TypeError(
            f"Engine() got {what_is(process)} for its process function, which cannot be called "
            "with the state and a batch; it needs step(state, batch). For a model, an optimizer "
            "and a loss, write supervised(model, optimizer, loss_fn)"
        )


def refuse_samples(data: object) -> None:
    """Refuse a data set instead of batches; a stream may give batches, and gets a warning."""
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise TypeError(f"the data is {data!r}; it has to give batches: a DataLoader, a list")
    utils: Any = sys.modules.get("torch.utils.data")
    # Indices alone may be the data of a step; a Mixture has its samples beside them.
    if utils is not None and isinstance(data, utils.Sampler) and hasattr(data, "data"):
        raise TypeError(
            f"the data is a {type(data).__name__}, which gives indices; write "
            "loader(mixture, batch_size, training=True)"
        )
    kind = type(data).__name__
    is_of_batches = kind == "WebLoader" or "<_batched " in repr(getattr(data, "pipeline", ()))
    if utils is None or not isinstance(data, utils.Dataset) or is_of_batches:  # of webdataset
        return
    what = (
        f"the data is a {kind}, so each of its items is taken for a batch. If they are samples, "
        "write DataLoader(dataset, batch_size=32); if they are batches, "
        "DataLoader(dataset, batch_size=None)"
    )
    if not isinstance(data, utils.IterableDataset):
        raise TypeError(what)
    warn(what)


def no_handler(given: Any) -> TypeError:
    """The error for an object that is not a handler; it says what to write."""
    return TypeError(
        f"{what_is(given)} is no handler: it needs an attach(engine) method, and to be an object "
        f"rather than a class; {_instead(given)}"
    )


def _instead(given: Any) -> str:
    if isinstance(given, type):
        return f"make one: engine.add({given.__name__}(...))"
    if isinstance(given, dict):
        return 'for objects by name, write Engine(process, objects={"model": model, ...})'
    if isinstance(given, list | tuple):
        return "for each of several, write engine.add(*handlers)"
    if hasattr(given, "param_groups"):
        return "for an optimizer, write Update(optimizer), or supervised(model, optimizer, loss_fn)"
    if hasattr(given, "optimizer") and hasattr(given, "step"):
        return "for a scheduler, write engine.add(LRSchedule(scheduler))"
    if modules.is_module(given):
        if hasattr(given, "compute"):
            return 'for a metric, write engine.add(Metrics({"accuracy": metric}))'
        return f"for a module, write {OBJECTS}"
    return "for a function, use @engine.on(event)"


def type_and_shape(given: Any) -> str:
    """The type of a value, and of a tensor its shape: `float32[8, 3]`."""
    if not (hasattr(given, "dtype") and hasattr(given, "shape")):
        return f"of type {type(given).__name__}"
    return f"{str(given.dtype).removeprefix('torch.')}{list(given.shape)}"


def what_is(given: Any) -> str:
    """A description of an argument: the name of a class or function, or a plain value's repr."""
    if isinstance(given, type):
        return f"the class {given.__name__}"
    if callable(given) and hasattr(given, "__qualname__"):
        return f"the function {given.__name__}"
    if isinstance(given, str | int | float | bool | None):
        return repr(given)
    name = type(given).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"

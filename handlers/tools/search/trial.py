"""A trial: real steps, which no handler logs, saves or schedules, and which leave no trace."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from ....engine import Engine, Events, Subscription
from ....engine.changes import generators_of_run, script_functions
from ....engine.modules import all_modules, optimizers_in, set_in_place
from ....engine.state import capture_generators, restore_generators, same_states
from ....engine.update import Update

Undo = Callable[[], object]
STEP = {Events.BACKWARD_COMPLETED, Events.GRADIENTS_READY}
"""The events between the backward pass and the optimizer's step."""
STEPPERS = (Optimizer, torch.amp.GradScaler)


def trial_engine(engine: Engine[Any, Any]) -> Engine[Any, Any]:
    """An engine that makes the same steps, with those handlers alone that may change a step.

    These are the functions that are called between the backward pass and the optimizer's step,
    and all of a handler that has such a function: clipping and the guard against NaN take part.
    A handler's attribute `in_trials` decides otherwise: it is True for `Freeze`.
    """
    heard = [each for event in STEP for each in engine.signal(event).receivers.values()]
    between = {id(owner) for each in heard if (owner := _owner(each)) is not None}

    def keep(subscription: Subscription) -> bool:
        owner = _owner(subscription)
        changes_step = id(owner) in between or not STEP.isdisjoint(subscription.trigger.events)
        return bool(getattr(owner, "in_trials", changes_step))

    return engine.bare(keep)


def _owner(receiver: Any) -> Any:
    """The handler whose method a receiver is; None for a function."""
    return getattr(getattr(receiver, "function", None), "__self__", None)


@contextmanager
def as_before(
    engine: Engine[Any, Any], data: object, *others: Any, has_steps: bool = True
) -> Generator[Undo]:
    """Within a `with` block, train; afterwards objects, data and random generators are as before.

    Copies of tensors are on the CPU, so they take no memory of the device, and each tensor stays
    the same object. What `with` gives is a function that goes back to before at once. `others` are
    objects that the engine may not know. Without steps, what optimizers hold stays, and so do data.

    Raises:
        TypeError: `data` is an iterator.
        ValueError: The engine has no module among its objects.
    """
    if has_steps:
        _check(engine, data)
    undo = [*_objects(engine, others, has_steps=has_steps)]
    undo += [*(_data(data) if has_steps else ()), _generators(engine, data)]

    def go_back() -> None:
        for each in undo:
            each()

    try:
        yield go_back
    except BaseException:
        with suppress(Exception):  # a failed device must not hide its first error
            go_back()
        raise
    else:
        go_back()


def _check(engine: Engine[Any, Any], data: object) -> None:
    if isinstance(data, Iterator):
        raise TypeError(
            f"a {type(data).__name__} gives each batch once, and the training would miss those of "
            "this trial; pass what can begin again: a DataLoader, a list"
        )
    if not any(isinstance(each, Module) for each in engine.objects.values()):
        raise ValueError(
            "the engine knows no module, so nothing could be put back after this trial; name it: "
            'Engine(..., objects={"model": model, "optimizer": optimizer})'
        )
    modules = all_modules(engine.objects.values())
    if any(map(is_lazy, (each for module in modules for each in module.parameters(False)))):
        raise ValueError(
            "the model has lazy layers, whose weights have no shape before the first batch, and "
            "could not be put back; call the model with a batch first: model(inputs)"
        )


def _objects(engine: Engine[Any, Any], others: Iterable[Any], *, has_steps: bool) -> Iterator[Undo]:
    """The engine's objects; a tensor that several of them have is copied once.

    The `state_dict` of a scaler lacks a step that was broken off, and that of an optimizer lacks
    attributes, so these two are copied as they are.
    """
    updates = engine.find(Update)
    stepped = (one for each in updates for one in optimizers_in(each.optimizer))
    found = [*engine.objects.values(), *stepped, *others]
    objects = list({id(each): each for each in found}.values())
    tensors, containers = list[Tensor](), dict[int, Any]()
    yield partial(_refill, engine.objects, dict(engine.objects))
    kinds = STEPPERS if has_steps else STEPPERS[1:]
    for each in (*all_modules(objects), *(one for one in objects if isinstance(one, kinds))):
        _walk(vars(each), containers, tensors)
        if isinstance(each, Optimizer):  # of a wrapper, these are those of the optimizer inside
            _walk((each.state, each.param_groups), containers, tensors)
    yield from map(_content, containers.values())
    own = {id(each): each for each in tensors if each.is_leaf and not each.is_inference()}
    yield from map(_tensor, own.values())
    for each in objects:
        if not isinstance(each, (Module, *STEPPERS)):
            yield from _state(each)


def _data(data: object) -> Iterator[Undo]:
    """Attributes of a loader, its samplers and its data set."""
    batch_sampler = getattr(data, "batch_sampler", None)
    parts = [data, getattr(data, "dataset", None), getattr(data, "sampler", None)]
    for part in [*parts, batch_sampler, getattr(batch_sampler, "sampler", None)]:
        yield from _attributes(part)


def _generators(engine: Engine[Any, Any], data: object) -> Undo:
    """All random generators: the global ones, the data's, and the run's own."""
    functions = script_functions(engine.process, engine.signals)
    named = generators_of_run(engine.objects, functions, data)
    return partial(restore_generators, capture_generators(data, named), data, named)


def _attributes(thing: Any) -> Iterator[Undo]:
    """The attributes of an object, and the content of those that are dicts and lists.

    These are counters, modes and caches. What changes deeper inside is not undone.
    """
    own = getattr(thing, "__dict__", {})
    inside = (each for each in own.values() if isinstance(each, dict | list))
    yield from map(_content, (own, *inside))


def _walk(value: Any, containers: dict[int, Any], tensors: list[Tensor]) -> None:
    """Find the containers and the tensors in nested dicts, lists and tuples."""
    if isinstance(value, Tensor):
        tensors.append(value)
    elif isinstance(value, dict | list | tuple) and id(value) not in containers:
        if not isinstance(value, tuple):
            containers[id(value)] = value
        for each in value.values() if isinstance(value, dict) else value:
            _walk(each, containers, tensors)


def _content(container: Any) -> Undo:
    """The content of a dict or a list."""
    if isinstance(container, dict):
        return partial(_refill, container, dict(container))
    return partial(container.__setitem__, slice(None), list(container))


def _refill(container: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Restore the content and order of a dict; leave an unchanged dict alone."""
    same_keys = list(map(id, container)) == list(map(id, before))
    if not same_keys or any(container[key] is not value for key, value in before.items()):
        container.clear()
        container.update(before)


def _tensor(tensor: Tensor) -> Undo:
    """The values of a tensor, its gradient, and whether a gradient is wanted."""
    gradient, is_wanted = tensor.grad, tensor.requires_grad
    pairs = [(each, _on_cpu(each)) for each in (tensor, gradient) if each is not None]

    def put_back() -> None:
        for each, copy in pairs:
            set_in_place(each, copy)
        tensor.grad = gradient
        if tensor.requires_grad != is_wanted:
            tensor.requires_grad_(is_wanted)

    return put_back


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def _state(thing: Any) -> Iterator[Undo]:
    """The `state_dict` of schedules and of the script's own objects, if it has changed."""
    if hasattr(thing, "load_state_dict"):
        saved = deepcopy(thing.state_dict())

        def put_back() -> None:
            if not same_states(thing.state_dict(), saved):
                thing.load_state_dict(deepcopy(saved))

        yield put_back

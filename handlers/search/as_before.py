"""Training that leaves no trace: what it changes is copied before, and put back afterwards."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils._pytree import tree_flatten, tree_unflatten

from ...engine import Engine
from ...engine.modules import weights_of
from ...engine.state import capture_generators, restore_generators
from ...engine.update import Update, parameters_of

Undo = Callable[[], object]


@contextmanager
def as_before(engine: Engine[Any, Any], data: object, *others: Optimizer) -> Generator[Undo]:
    """Within a `with` block, train; afterwards objects, data and random generators are as before.

    Copies of tensors are on the CPU, so they take no memory of the device, and each tensor stays
    the same object. What `with` gives is a function that goes back to before at once. `others` are
    optimizers that the engine may not know.

    Raises:
        TypeError: `data` is an iterator.
        ValueError: The engine has no module among its objects.
    """
    _check(engine, data)
    undo = [*_objects(engine, others), *_data(data)]

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


def _objects(engine: Engine[Any, Any], others: Iterable[Optimizer]) -> Iterator[Undo]:
    """What the engine's objects hold; tensors that several of them have are copied once."""
    updates = [each for each in engine.handlers.values() if isinstance(each, Update)]
    found = [*engine.objects.values(), *(each.optimizer for each in updates), *others]
    objects = list({id(each): each for each in found}.values())
    modules = [each for each in objects if isinstance(each, Module)]
    optimizers = [each for each in objects if isinstance(each, Optimizer)]
    tensors = [each for module in modules for each in weights_of(module).values()]
    tensors += [each for optimizer in optimizers for each in parameters_of(optimizer)]
    yield partial(_refill, engine.objects, dict(engine.objects))
    yield _attributes([*(part for module in modules for part in module.modules()), *optimizers])
    yield _tensors({id(each): each for each in tensors}.values())
    yield from (_state(each) for each in objects if not isinstance(each, Module | Optimizer))
    yield from map(_settings, optimizers)


def _state(thing: Any) -> Undo:
    """What `state_dict` gives: of schedules, and of objects of one's own."""
    if isinstance(thing, torch.amp.GradScaler):  # its state_dict lacks a step that was broken off
        before = _copy(vars(thing))
        return lambda: _refill(vars(thing), before())
    if not hasattr(thing, "load_state_dict"):
        return lambda: None
    saved = deepcopy(thing.state_dict())
    return lambda: thing.load_state_dict(deepcopy(saved))


def _data(data: object) -> Iterator[Undo]:
    """Of a loader, its samplers and its data set: attributes like epochs, and random generators."""
    rng = capture_generators(data)
    batch_sampler = getattr(data, "batch_sampler", None)
    parts = [data, getattr(data, "dataset", None), getattr(data, "sampler", None)]
    yield _attributes([*parts, batch_sampler, getattr(batch_sampler, "sampler", None)])
    yield partial(restore_generators, rng, data)


def _tensors(tensors: Iterable[Tensor]) -> Undo:
    """Values, gradients, and whether gradients are wanted."""
    found = list(tensors)
    values, gradients = _copy(found), _copy([each.grad for each in found])
    wanted = [each.requires_grad for each in found]

    def put_back() -> None:
        values()
        for tensor, gradient, is_wanted in zip(found, gradients(), wanted, strict=True):
            tensor.grad = gradient
            if tensor.requires_grad != is_wanted:
                tensor.requires_grad_(is_wanted)

    return put_back


def _settings(optimizer: Optimizer) -> Undo:
    """The state of an optimizer, such as its moments, and the settings of its groups."""
    groups = list(optimizer.param_groups)
    given = [{key: value for key, value in group.items() if key != "params"} for group in groups]
    parameters = [list(group["params"]) for group in groups]
    state, settings = _copy(dict(optimizer.state)), _copy(given)

    def put_back() -> None:
        _refill(optimizer.state, state())
        optimizer.param_groups[:] = groups
        for group, own, values in zip(groups, parameters, settings(), strict=True):
            _refill(group, {"params": own, **values})

    return put_back


def _attributes(things: Iterable[Any]) -> Undo:
    """The attributes of objects, and the content of those that are dicts and lists.

    These are counters, modes and caches. What changes deeper inside is not undone.
    """
    owners = [vars(each) for each in things if hasattr(each, "__dict__")]
    held = [each for owner in owners for each in owner.values()]
    dicts = [*owners, *(each for each in held if isinstance(each, dict))]
    contents = [(each, dict(each)) for each in dicts]
    lists = [(each, list(each)) for each in held if isinstance(each, list)]

    def put_back() -> None:
        for each, content in contents:
            _refill(each, content)
        for items, before in lists:
            items[:] = before

    return put_back


def _copy(tree: Any) -> Callable[[], Any]:
    """Copy nested values; what is returned gives them again, in the same tensors."""
    leaves, form = tree_flatten(tree)
    copies = [
        each.detach().to("cpu", copy=True) if isinstance(each, Tensor) else deepcopy(each)
        for each in leaves
    ]

    def again() -> Any:
        values: list[Any] = []
        for leaf, copy in zip(leaves, copies, strict=True):
            if isinstance(leaf, Tensor):
                leaf.data.copy_(copy)
            values.append(leaf if isinstance(leaf, Tensor) else deepcopy(copy))
        return tree_unflatten(values, form)

    return again


def _refill(held: Any, before: dict[Any, Any]) -> None:
    """Let a dict hold what it held before, in the same order; one that still does is left alone."""
    same_keys = list(map(id, held)) == list(map(id, before))
    if not same_keys or any(held[key] is not value for key, value in before.items()):
        held.clear()
        held.update(before)

"""The report of a trial's process on a run at a save: checksums of all that may differ."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from inspect import currentframe
from pathlib import Path
from types import CellType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from ....engine import State, package_of
from ....engine.state import capture_generators, own_generators
from .digests import PLAIN, digest, generator_digests, is_array, leaves

MOST = 3000
"""The most values around a run that are examined."""
DEPTH = 4
SAMPLE = 1 << 20
"""The most elements of a tensor around a run, such as a data set, that a checksum covers."""
LIBRARIES = {"camshaft", "torch", "torchmetrics", "ignite", "tqdm", "tensorboardX", "numpy"}
"""Handlers save the objects of these libraries, or the objects hold no state of a script."""


def facts_of(event: str, handler: Any, state: State[Any, Any]) -> dict[str, Any]:
    """The facts of one moment, for a line of JSON."""
    engine = state.engine
    facts: dict[str, Any] = {
        "iteration": state.iteration,
        "epoch": state.epoch,
        "in_epoch": state.in_epoch,
        "resume": bool(handler.resume),
        "start_over": handler.start_over,
        "interrupted": event == "close" and state.is_interrupted,
        "reason": str(state.stop_reason or ""),
        "objects": {
            name: {path or "state": digest(each) for path, each in leaves(each.state_dict())}
            for name, each in engine.objects.items()
        },
        "generators": generator_digests(),
        "around": around(state),
        "samplers": sorted({type(each).__name__ for each in _own_samplers(state)}),
        "devices": sorted(devices(engine.objects)),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    if event == "save":
        facts["metrics"] = {str(name): digest(each) for name, each in state.metrics.items()}
    return facts


def _own_samplers(state: State[Any, Any]) -> Iterator[Any]:
    """The samplers of the run's data of which only their authors know what decides the order."""
    data: Any = state.control.data
    for own in (data, getattr(data, "batch_sampler", None)):
        for each in (own, getattr(own, "sampler", None)):
            if each is not data and each is not None and package_of(type(each)) not in LIBRARIES:
                yield each


def devices(objects: Mapping[str, Any]) -> set[str]:
    """The kinds of devices on which the weights are."""
    modules = [each for each in objects.values() if isinstance(each, Module)]
    return {weight.device.type for module in modules for weight in module.parameters()}


def around(state: State[Any, Any]) -> dict[str, list[str]]:
    """The script's values around the run that no checkpoint saves: by name, kind and checksum.

    These are the variables of the functions that wait for the run, of the script, and of the
    functions and handlers of the engine.
    """
    queue: deque[tuple[str, Any, int]] = deque(_variables(state))
    known = {id(each) for each in _known(state)}
    found = dict[str, list[str]]()
    while queue and len(known) < MOST:
        name, value, depth = queue.popleft()
        if not isinstance(value, PLAIN):
            if id(value) in known:
                continue
            known.add(id(value))
        try:
            state_of = _state_of(value)
        except Exception:  # a class of the script's that has no state yet
            continue
        if state_of is not None:
            found[name] = [type(value).__name__, state_of]
        elif depth < DEPTH:
            queue.extend((f"{name}{inner}", each, depth + 1) for inner, each in _inside(value))
    return found


def _variables(state: State[Any, Any]) -> Iterator[tuple[str, Any, int]]:
    engine: Any = state.engine
    functions = [engine.process, *engine.handlers.values()]
    for each in functions:
        yield from ((name, value, 1) for name, value in _of_function(each))
    frame = currentframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).split(".")[0] not in _NOT_OF_SCRIPTS:
            yield from ((name, value, 0) for name, value in [*frame.f_locals.items()])
        frame = frame.f_back
    main = vars(sys.modules["__main__"])
    yield from ((name, each, 0) for name, each in [*main.items()] if not name.startswith("__"))


_NOT_OF_SCRIPTS = LIBRARIES | sys.stdlib_module_names - {"__main__"} | {"sitecustomize"}


def _of_function(function: Any) -> Iterator[tuple[str, Any]]:
    """The variables that a function knows: of its closure, its `self` and its arguments."""
    if isinstance(function, MethodType):
        yield type(function.__self__).__name__, function.__self__
        function = function.__func__
    if isinstance(function, FunctionType):
        cells: tuple[CellType, ...] = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        own = function.__globals__
        yield from ((name, own[name]) for name in function.__code__.co_names if name in own)
    elif hasattr(function, "func") and hasattr(function, "args"):  # a partial
        yield from _of_function(function.func)
        yield from ((f"argument {n}", each) for n, each in enumerate(function.args))
        yield from function.keywords.items()
    else:
        yield type(function).__name__, function


def _known(state: State[Any, Any]) -> Iterator[Any]:
    """The objects that are saved already or belong to the run itself."""
    yield state
    yield state.engine
    yield from state.metrics.values()
    for each in state.engine.objects.values():
        yield each
        if isinstance(each, Module):
            yield from each.modules()
            yield from each.parameters()
            yield from each.buffers()


def _state_of(value: Any) -> str | None:
    """The checksum of a value with its own state; None if it is searched for values or skipped."""
    if isinstance(value, Tensor) or is_array(value):
        size = value.numel() if isinstance(value, Tensor) else value.size
        return digest(value.reshape(-1)[:: 1 + size // SAMPLE] if size > SAMPLE else value)
    if isinstance(value, PLAIN):
        return digest(value)
    if isinstance(value, dict | list | tuple | set | frozenset | deque) and _is_plain(value):
        return digest(sorted(map(repr, value)) if isinstance(value, set | frozenset) else [value])
    if own_generators(owner := SimpleNamespace(value=value)):
        return digest(capture_generators(owner).generators)
    is_metric = package_of(type(value)) == "torchmetrics"
    if isinstance(value, Module | Optimizer | LRScheduler) and not is_metric:
        return digest([(path, digest(each)) for path, each in leaves(value.state_dict())])
    return None


def _is_plain(value: Any) -> bool:
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    return all(isinstance(each, PLAIN) for each in inner)


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """The values of containers and of the attributes of a script's own objects."""
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", each) for key, each in [*value.items()][:100])
    elif isinstance(value, list | tuple | deque):
        yield from ((f"[{key}]", each) for key, each in enumerate([*value][:100]))
    elif isinstance(value, DataLoader):
        yield ".dataset", value.dataset
    elif isinstance(value, FunctionType | MethodType):
        yield from ((f" → {name}", each) for name, each in _of_function(value))
    elif hasattr(value, "__dict__") and not _is_passed(value):
        yield from ((f".{name}", each) for name, each in [*vars(value).items()][:100])


def _is_passed(value: Any) -> bool:
    """True for modules, classes, and objects of libraries."""
    return isinstance(value, type | ModuleType | Path) or package_of(type(value)) in _NOT_OF_SCRIPTS

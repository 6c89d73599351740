"""Resuming a run from a checkpoint: compare all of it before anything is loaded."""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from enum import Enum
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ....engine import State, ranks
from ....engine.modules import in_place, moves
from ....engine.state import is_plain_tensor
from ...common import advance, fields_of
from ...files import printable, printable_lines
from ..directory import Saved
from ..format import reading
from ..weights import has_groups, load_weights
from .plan import Change, Fate, LoadPlan, is_of, with_fate
from .read import SavedRun, VerifyingReader, in_memory

logger: logging.Logger = logging.getLogger("camshaft")

OF_SCRIPT = (torch.dtype, torch.device, Enum, type, partial, FunctionType, BuiltinFunctionType)
"""The kinds of settings that a script gives anew: they stay as the script has them."""


def resume(
    state: State[Any, Any],
    found: Saved,
    handler: str,
    *,
    read_once: VerifyingReader | None = None,
    override: Sequence[str] = (),
    reset: Sequence[str] = (),
) -> None:
    """Load a checkpoint into a run, on all ranks; `handler` is the name of the one that loads.

    Tensors that are in memory, because they were verified there, are not read again.

    Raises:
        BrokenCheckpoint: The checkpoint cannot be read.
        ValueError: The checkpoint does not fit the script; nothing is changed.
    """
    path = found.path
    with ranks.on_all_ranks(f"read {path}"), reading(path):
        saved = SavedRun.at(found, state.engine.objects, read_once.tensors if read_once else {})
        earlier = saved.run["memory"].get(handler, {})
        plan = LoadPlan(saved, state.engine, state.control.settings, override, reset, earlier)
        own = (*plan.names(), {*plan.lines(Fate.HERE)})
    override_names, reset_names, here = (
        set[str]().union(*each) for each in zip(*ranks.gathered(own), strict=True)
    )
    with ranks.on_all_ranks(f"load {path}"), _naming(path):
        plan.check(override_names, reset_names)
    with ranks.on_all_ranks(f"load {path}"), _naming(path):
        _report(plan, here)
        load(plan, state)
    state.control.resumed_from = str(path)


@contextmanager
def _naming(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(printable_lines(f"cannot load {path}: {error}")) from error


def load(plan: LoadPlan, state: State[Any, Any]) -> None:
    """Load the saved states of what goes on, and step the schedules that are replayed."""
    objects, saved = plan.engine.objects, plan.saved.objects
    courses = _courses(plan)
    loaded = with_fate(plan.objects, Fate.LOAD)
    for name in plan.first:
        _load_object(plan, name)
    if plan.first:
        plan.check_later()
    for name, groups in plan.added.items():
        for group in groups:
            add_group(objects[name], group)
    # Modules come last: if another object refuses its state, the model is unchanged.
    rest = (name for name in loaded if name not in plan.first)
    for name in sorted(rest, key=lambda name: isinstance(objects[name], Module)):
        _load_object(plan, name)
    for name in with_fate(plan.objects, Fate.ANEW):
        if isinstance(objects.get(name), Optimizer) and has_groups(saved.get(name, ())):
            take_rates(objects[name], saved[name]["param_groups"], [objects[e] for e in loaded])
    put_settings(objects, plan.changes.values())
    for name, course in courses.items():
        for group, driven in zip(objects[name].optimizer.param_groups, course, strict=True):
            group.update(driven)
    run = plan.saved.run
    memory = {name: run["memory"][name] for name in with_fate(plan.memory, Fate.LOAD)}
    state.load_state_dict({**run, "memory": memory, "settings": plan.own_settings})


def _load_object(plan: LoadPlan, name: str) -> None:
    own, saved = plan.engine.objects[name], plan.saved.objects[name]
    if isinstance(own, Optimizer):
        load_optimizer(own, in_memory(saved))
    elif not isinstance(own, Module):
        with in_place(own):
            own.load_state_dict(in_memory(saved))
    else:
        try:
            load_weights(own, saved)
            if buffers := plan.saved.buffers.get(name):
                load_weights(own, buffers)
        except RuntimeError as error:  # torch copies in the order of names until one fails
            raise ValueError(f"{name!r} has not taken all its weights: {error}") from error


def load_optimizer(optimizer: Any, saved: Mapping[str, Any]) -> None:
    """Put a state back; what the script gives anew, or has in two places, stays so.

    A state may hold its whole group, so that a schedule that sets the group's rate sets it there.
    """
    groups, held = getattr(optimizer, "param_groups", []), groups_in(optimizer)
    if has_groups(saved) and len(groups) == len(saved["param_groups"]):
        given = [{k: g[k] for k in g if isinstance(g[k], OF_SCRIPT)} for g in groups]
        pairs = zip(given, saved["param_groups"], strict=True)
        saved = {**saved, "param_groups": [{**own, **group} for own, group in pairs]}
        own = {k: v for k, v in optimizer.state.items() if isinstance(v, Tensor)}
        devices = {k: v.device for k, v in own.items() if isinstance(saved["state"].get(k), Tensor)}
        moved = {key: saved["state"][key].to(device) for key, device in devices.items()}
        saved["state"] = {**saved["state"], **moved}
    with in_place(optimizer):
        optimizer.load_state_dict(saved)
    for (parameter, key), number in held.items():
        optimizer.state[parameter][key] = optimizer.param_groups[number]
    for group in getattr(optimizer, "param_groups", []):
        if group.get("fused"):
            for parameter in group["params"]:
                _lay_like(parameter, optimizer.state.get(parameter, {}))


def _lay_like(parameter: Tensor, state: dict[str, Any]) -> None:
    """Lay moments in memory as their weight lies, since a fused step on a CPU pairs by memory."""
    for key, value in state.items():
        is_moment = is_plain_tensor(value) and value.shape == parameter.shape
        if is_moment and value.stride() != parameter.stride():
            state[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def add_group(optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    """Add a saved group with its parameters, which may have names."""
    group = {key: value for key, value in saved.items() if key != "param_names"}
    if names := saved.get("param_names"):
        group["params"] = [*zip(names, saved["params"], strict=True)]
    optimizer.add_param_group(group)


def groups_in(optimizer: Any) -> dict[tuple[Any, Any], int]:
    """By parameter and key: the groups that are values in the state, by their numbers."""
    numbers = {id(group): n for n, group in enumerate(getattr(optimizer, "param_groups", []))}
    return {
        (parameter, key): numbers[id(value)]
        for parameter, state in getattr(optimizer, "state", {}).items()
        if isinstance(state, dict)
        for key, value in state.items()
        if id(value) in numbers
    }


def _courses(plan: LoadPlan) -> dict[str, list[dict[str, Any]]]:
    """By schedule that is not loaded: the values that it set in each group."""
    objects, saved = plan.engine.objects, plan.saved.objects
    courses = {}
    for name in with_fate(plan.objects, Fate.REPLAY):
        try:
            courses[name] = replay(objects[name], saved.get(name))
        except ValueError as error:
            raise ValueError(f"the changed schedule {name!r} cannot resume: {error}") from error
    for name in with_fate(plan.objects, Fate.ANEW):
        if isinstance(objects.get(name), LRScheduler):
            courses[name] = replay(objects[name], None)
    return courses


def _report(plan: LoadPlan, here: Collection[str]) -> None:
    if ranks.rank() > 0:
        return
    for what, lines in plan.report(here).items():
        if lines:
            logger.warning("%s:\n  %s", what, "\n  ".join(map(printable, lines)))
    if new := with_fate(plan.memory, Fate.KEEP):
        logger.info("handlers without a memory in the checkpoint: %s", ", ".join(new))


def replay(scheduler: LRScheduler, saved: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Step a new schedule to where the saved one was; return the values it set in each group.

    A schedule that the checkpoint lacks, and a `ReduceLROnPlateau`, stays at its start.
    """
    if saved is not None:
        advance(scheduler, saved)
    fields = fields_of(scheduler)
    return [_moved(group, fields) for group in scheduler.optimizer.param_groups]


def take_rates(
    optimizer: Optimizer, saved: Sequence[Mapping[str, Any]], kept: Iterable[object]
) -> None:
    """Give an optimizer that begins anew the saved rates of the schedules that are loaded."""
    schedules = [e for e in kept if isinstance(e, LRScheduler) and moves(e, optimizer)]
    for fields in map(fields_of, schedules):
        for group, saved_group in zip(optimizer.param_groups, saved, strict=True):
            group.update(_moved(saved_group, fields))


def put_settings(objects: Mapping[str, Any], changes: Iterable[Change]) -> None:
    """Set the changed settings of optimizers and of `ReduceLROnPlateau`."""
    values = {change.name: change.new for change in changes}
    for name, each in objects.items():
        own = {key.removeprefix(f"{name}."): values[key] for key in values if is_of(name, key)}
        own.pop("class", None)
        if isinstance(each, ReduceLROnPlateau):
            each.load_state_dict(deepcopy(own))
        elif isinstance(each, Optimizer):
            for number, group in enumerate(each.param_groups):
                prefix = "" if len(each.param_groups) == 1 else f"{number}."
                mine = {key.removeprefix(prefix): own[key] for key in own if key.startswith(prefix)}
                mine |= {f"initial_{k}": mine[k] for k in mine if f"initial_{k}" in group}
                group.update(deepcopy(mine))


def _moved(group: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """The values of a group that a schedule of these fields sets."""
    return {
        key: deepcopy(value)
        for key, value in group.items()
        if key.removeprefix("initial_").partition(".")[0] in fields
    }

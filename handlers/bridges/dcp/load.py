"""Weights and optimizers from a directory of `torch.distributed.checkpoint` (DCP)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from ....engine import few, ranks
from ....engine.modules import box_of, in_place, is_spread, parameters_of
from ...checkpoint import BrokenCheckpoint, StoredTensor
from ...checkpoint.load import ScriptTensors, load_weights, parameter_names, weights
from .directory import DCPDirectory, qualified


def load_dcp(directory: str | Path, objects: Mapping[str, Module | Optimizer]) -> None:
    """Load modules and optimizers from what `torch.distributed.checkpoint.save` wrote.

    Call it before the run. Optimizers have to be saved by torch's `get_state_dict`, in either of
    its forms: their states go by names, so parameters and groups may have another order. No process
    group is needed. On shards, all ranks call this, and each reads what overlaps with its own.
    Nothing that the directory names is called. Nothing is changed if anything does not fit.

    Args:
        directory: The directory with the `.metadata`.
        objects: By their keys in the saved state dict: modules, and optimizers of their parameters.
            The key is `""` for weights that were saved without one, as torchtitan does.

    Raises:
        BrokenCheckpoint: The directory is damaged, incomplete or hostile.
        TypeError: An object is neither a module nor an optimizer.
        ValueError: Names, shapes or types do not fit.
    """
    if odd := [key for key, own in objects.items() if not isinstance(own, Module | Optimizer)]:
        raise TypeError(f"load_dcp: {odd[0]!r} is neither a module nor an optimizer")
    with ranks.on_all_ranks(f"read {directory}"):
        saved, states = DCPDirectory(Path(directory)), dict[str, Any]()
        # Modules come first, and are loaded last: an optimizer may refuse its state.
        order = sorted(objects, key=lambda key: isinstance(objects[key], Optimizer))
        for key in order:
            own, names = objects[key], saved.names(key)
            with _refusing(key, directory):
                if isinstance(own, Module):
                    states[key] = _weights(saved, names, own)
                else:
                    states[key] = _state(saved, names, own, objects)
    _load(directory, {key: objects[key] for key in reversed(order)}, states)


@contextmanager
def _refusing(key: str, directory: str | Path) -> Generator[None]:
    try:
        yield
    except (BrokenCheckpoint, MemoryError, OSError):
        raise
    except Exception as error:
        said = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise ValueError(f"{key!r} cannot be loaded from {directory}: {said}") from error


def _load(directory: str | Path, objects: Mapping[str, Any], states: Mapping[str, Any]) -> None:
    """Load the states; if an object refuses its own, all objects become what they were."""
    modules = {key: own for key, own in objects.items() if isinstance(own, Module)}
    # A tensor of the right form fits. Of other values, their module says so as it takes them.
    odd = any(not isinstance(e, StoredTensor) for key in modules for e in states[key].values())
    before = {key: deepcopy(weights(own)) for key, own in modules.items() if odd}
    attributes = {key: dict(vars(own)) for key, own in objects.items() if key not in modules}
    try:
        with ExitStack() as stack, ranks.on_all_ranks(f"load {directory}"):
            for key, own in objects.items():
                stack.enter_context(in_place(own))
                with _refusing(key, directory):
                    if isinstance(own, Module):
                        load_weights(own, states[key])
                    else:
                        own.load_state_dict(states[key])
    except BaseException:
        for key, kept in attributes.items():  # torch replaces what it changes
            vars(objects[key]).update(kept)
        for key, kept in before.items():
            load_weights(modules[key], kept)
        raise


def _weights(saved: DCPDirectory, names: Mapping[str, str], module: Module) -> dict[str, Any]:
    own = weights(module)
    _check({*own}, {*names})
    found = {name: saved.tensors.get(full) or saved.value(full) for name, full in names.items()}
    if odd := [name for name in own if _form(own[name]) != _form(found[name])]:
        has, needed = _form(found[odd[0]]), _form(own[odd[0]])
        raise ValueError(f"{odd[0]!r} is {has} there, and {needed} in the model")
    for name, stored in found.items():  # whatever is damaged is found before anything is changed
        if isinstance(stored, StoredTensor):
            stored.read(box_of(own[name]) if is_spread(own[name]) else None)
    return found


def _form(value: Any) -> str:
    dtype = value.info.dtype if isinstance(value, StoredTensor) else getattr(value, "dtype", "")
    return f"{dtype} {[*value.shape]}".removeprefix("torch.") if dtype else "no tensor"


def _state(
    saved: DCPDirectory, names: Mapping[str, str], own: Optimizer, objects: Mapping[str, Any]
) -> dict[str, Any]:
    """The state of an optimizer, by the indices of its parameters."""
    places = qualified(parameter_names(own, objects))
    count = sum(len(group["params"]) for group in own.param_groups)
    if lost := {*range(count)} - {*places.values()}:
        raise ValueError(f"parameter {min(lost)} is in none of the modules: pass that as well")
    settings, states = _by_owner(names, "param_groups"), _by_owner(names, "state")
    nested = {owner: each for owner, each in settings.items() if "params" in each}
    values = {
        owner: {what: saved.value(full) for what, full in each.items()}
        for owner, each in (nested or settings).items()
    }
    found = {n: each for each in values.values() for n in each["params"]} if nested else values
    if any(isinstance(name, int) for name in found):
        raise ValueError(
            "parameters have numbers there, as in optimizer.state_dict(), and no names: save "
            "torch's get_optimizer_state_dict(model, optimizer)"
        )
    # Tied weights have several names, of which one was saved.
    first = {places[name]: name for name in reversed(places) if name in found}
    _check({first.get(at, name) for name, at in places.items()}, {*found, *states})
    groups, number = list[dict[str, Any]](), 0
    for group in own.param_groups:
        indices = [*range(number, number := number + len(group["params"]))]
        each = [{**found[first[index]], "params": indices} for index in indices]
        if any(one != each[0] for one in each):
            raise ValueError("the parameters of one group have different settings there")
        new = each[0] if each else {**group, "params": indices}
        if group.keys() - new.keys() and new.keys() - group.keys():
            raise ValueError(f"another kind of optimizer was saved, with {few(sorted(new))}")
        both = [key for key in group if key != "params" and None not in (group[key], new.get(key))]
        _compare({key: new[key] for key in both}, {key: group[key] for key in both})
        groups.append({**group, **new})
    likes, kept, state = ScriptTensors({"x": own}), _kept_by(own, groups), dict[int, Any]()
    for name, fulls in states.items():
        state[at := places[name]] = {
            what: saved.tensors.get(full) or saved.value(full) for what, full in fulls.items()
        }
        _compare(state[at], kept.get(at, state[at]), f"of the states of {name!r}, ")
        for what, stored in state[at].items():
            if isinstance(stored, StoredTensor):
                place = f"x.state.{at}.{what}"
                state[at][what] = likes.of("x", {place: stored})[place].read()
    return {"state": state, "param_groups": groups}


def _kept_by(own: Optimizer, groups: list[dict[str, Any]]) -> dict[int, Any]:
    """By index: the states that an optimizer of torch has of a parameter, with these settings.

    A copy makes a step with parameters that have no memory. Other classes are not tried.
    """
    if not type(own).step.__module__.startswith("torch.optim."):
        return {}
    params = parameters_of(own)
    twins = [torch.empty(each.shape, dtype=each.dtype, device="meta") for each in params]
    for each in twins:
        each.grad = torch.empty_like(each)
    memo = dict(zip(map(id, params), twins, strict=True))
    copy = deepcopy(own, {**memo, id(own.state): defaultdict(dict)})
    for group in groups:
        plain = dict.fromkeys(group.keys() & {"capturable", "foreach", "fused"}, False)
        copy.param_groups = [{**group, **plain, "params": [twins[n] for n in group["params"]]}]
        with suppress(Exception):  # a step that asks for a number has made its states by then
            copy.step()
    return {number: copy.state[each] for number, each in enumerate(twins) if each in copy.state}


def _compare(given: Mapping[str, Any], own: Mapping[str, Any], place: str = "") -> None:
    """Compare what kinds of values there are; torch leaves out what is None."""
    has, needed = ({k: _kind(v) for k, v in e.items() if v is not None} for e in (given, own))
    for key in sorted(has | needed):
        if has.get(key) != needed.get(key):
            one, other = (each.get(key, "missing") for each in (has, needed))
            raise ValueError(f"{place}{key!r} is {one} there, and {other} in the optimizer")


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_kind, value))})"
    if isinstance(value, int | float) or getattr(value, "shape", None) == ():
        return "a number"
    return _form(value) if hasattr(value, "shape") else f"a {type(value).__name__}"


def _by_owner(names: Mapping[str, str], kind: str) -> dict[str, dict[str, str]]:
    """By parameter or number of a group, and by key: the full names of one kind."""
    found = dict[str, dict[str, str]]()
    for name in (name for name in names if name.startswith(f"{kind}.")):
        owner, _, what = name.removeprefix(f"{kind}.").rpartition(".")
        found.setdefault(owner, {})[what] = names[name]
    return found


def _check(own: set[str], given: set[str]) -> None:
    if own != given:
        lacks, more = (few(map(repr, sorted(each))) for each in (own - given, given - own))
        raise ValueError(f"names that are missing there: {lacks}; others that are there: {more}")

"""What prevents loading: names, kinds and shapes that do not fit, values that no run writes.

All of it is found before anything is loaded, so that an error changes nothing.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ....engine.state import Position, Rng, State, set_state
from ..directory import StoredTensor
from ..weights import changed, own_ways, parameter_names, weights

FROM_SCHEDULES = frozenset(
    {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr"}
)
"""Keys that schedulers add to an optimizer's groups."""

EXTRA_STATE = "_extra_state"
"""The key of the value of a module's `get_extra_state`, which may have any kind and shape."""
FREE_SHAPES = (LBFGS, getattr(torch.optim, "Adafactor", LBFGS))
"""Torch's optimizers with states of other shapes than the parameters."""


def mismatches(
    objects: Mapping[str, Any],
    saved: Mapping[str, Any],
    frozen: Mapping[str, Mapping[str, int]] | None = None,
    later: Sequence[str] = (),
) -> list[str]:
    """One line for each difference that prevents loading, but not of what is compared `later`.

    The `frozen` weights were left out of the checkpoint.
    """
    found = list(_names("objects", "the engine", objects, saved))
    for name in (objects.keys() & saved.keys()).difference(later):
        found += mismatches_of(name, objects[name], saved[name], (frozen or {}).get(name, {}))
    return found


def mismatches_of(
    name: str, own: Any, saved: Mapping[str, Any], frozen: Mapping[str, int] | None = None
) -> list[str]:
    """One line for each difference of an object that prevents loading its saved state."""
    if isinstance(own, LRScheduler):
        return list(_unknown(name, own.state_dict(), saved))
    found = form_mismatches(name, form_needed(own), saved, frozen or {})
    if frozen and (others := changed(own, {k: frozen[k] for k in frozen if k in weights(own)})):
        found.append(
            f"{len(others)} frozen weights of {name!r}, such as {others[0]!r}, are not those of "
            "the run, and the checkpoint does not hold them: make the model of the same ones"
        )
    return found


class OfModule(NamedTuple):
    """What has to fit in a module."""

    weights: dict[str, str | None]
    """Their kinds and shapes by plain name; None for what may have any."""
    ways: tuple[str, ...]
    """The beginnings of names that are compared after the module has loaded them in its own way."""


class OfOptimizer(NamedTuple):
    """What has to fit in an optimizer."""

    keys: list[str]
    groups: list[tuple[int, set[str]]] | None
    """For each group: how many parameters, and the settings if the class is torch's."""


def form_needed(own: Any, *, is_loaded: bool = False) -> OfModule | OfOptimizer | None:
    """What has to fit in an object, whose values do not matter."""
    if isinstance(own, Module):
        found = {
            key: None if is_lazy(e) or key.endswith(EXTRA_STATE) else _kind_and_shape(e)
            for key, e in weights(own).items()
        }
        return OfModule(found, () if is_loaded else (*own_ways(own),))
    if not isinstance(own, Optimizer):
        return None
    state, is_torchs = own.state_dict(), _is_torchs(own)
    # The `step` of a class that is not torch's may add settings.
    groups = [
        (len(group.get("params", ())), {*group} if is_torchs else set[str]())
        for group in (state["param_groups"] if has_groups(state) else ())
    ]
    return OfOptimizer(sorted(map(str, state)), groups if has_groups(state) else None)


def form_mismatches(
    name: str, form: OfModule | OfOptimizer | None, saved: Any, frozen: Collection[str] = ()
) -> list[str]:
    """One line for each difference between the form of an object and a saved state."""
    if isinstance(form, OfModule):
        return list(_module_mismatches(name, form, saved, frozen))
    if form is None:
        return []
    if (form.groups is not None) != has_groups(saved):
        return [f"{name!r} is of another class: its state has {form.keys}"]
    return list(_group_mismatches(name, form.groups, saved)) if form.groups is not None else []


def parameter_mismatches(
    name: str,
    optimizer: Optimizer,
    objects: Mapping[str, Any],
    saved: Mapping[str, Mapping[str, int]],
) -> list[str]:
    """A line if the optimizer's state would be put on other parameters than it was saved of."""
    own = parameter_names(optimizer, objects)
    for module in own.keys() & saved.keys():
        here, there = _by_index(own[module]), _by_index(saved[module])
        for index in sorted(here.keys() & there.keys()):
            if here[index].isdisjoint(there[index]):
                return [
                    f"parameter {index} of {name!r} is {min(there[index])!r} of {module!r} in the "
                    f"checkpoint, and {min(here[index])!r} in the optimizer: give the optimizer "
                    "its parameters in the same order, and several optimizers the same names"
                ]
    return []


def _by_index(names: Mapping[str, int]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for name, index in names.items():
        found.setdefault(index, set()).add(name)  # tied weights have several names
    return found


def _is_torchs(optimizer: Optimizer) -> bool:
    return type(optimizer).__module__.startswith("torch.")


def has_groups(saved: Any) -> bool:
    """True for a state in torch's form; an optimizer that wraps others may have another form."""
    return isinstance(saved, Mapping) and {"state", "param_groups"} <= {*saved}


def memory_mismatches(unclaimed: Sequence[str], new: Sequence[str]) -> list[str]:
    """The lines about saved memories without a handler, and about the script's new handlers."""
    return list(_names("handlers", "the script", new, unclaimed)) if unclaimed else []


def _names(what: str, place: str, own: Collection[str], saved: Collection[str]) -> Iterator[str]:
    sides = ((place, set(own).difference(saved)), ("the checkpoint", set(saved).difference(own)))
    for where, names in sides:
        if names:
            yield f"{what} only in {where}: {', '.join(map(repr, sorted(names)))}"


def _module_mismatches(
    name: str, form: OfModule, saved: Mapping[str, Any], frozen: Collection[str]
) -> Iterator[str]:
    own, ways = form
    fixed = ([k for k in each if not k.startswith(ways)] for each in (own, {*saved, *frozen}))
    yield from _names(f"weights of {name!r}", "the module", *fixed)
    for key, here in own.items():
        if here is None or key not in saved or key.startswith(ways):
            continue
        if here != (there := _kind_and_shape(saved[key])):
            yield f"weight {key!r} of {name!r}: {there} in the checkpoint, {here} in the module"


def _group_mismatches(
    name: str, own: Sequence[tuple[int, set[str]]], saved: Mapping[str, Any]
) -> Iterator[str]:
    here = [count for count, _ in own]
    there = [len(group.get("params", ())) for group in saved["param_groups"]]
    if here != there:
        yield (
            f"the groups of {name!r} hold {there} parameters in the checkpoint and {here} in the "
            "optimizer"
        )
        return
    for (_, keys), group in zip(own, saved["param_groups"], strict=True):
        yield from _unknown(name, keys or group, group)


def _unknown(name: str, own: Collection[str], saved: Mapping[str, Any]) -> Iterator[str]:
    # New keys are no mismatch: newer versions of torch have more settings.
    if names := saved.keys() - {*own} - FROM_SCHEDULES:
        listed = ", ".join(map(repr, sorted(names)))
        yield f"{name!r} is of another class: it has no {listed}, which the checkpoint has"


def _kind_and_shape(value: Any) -> str:
    if isinstance(value, StoredTensor):
        return f"{value.info.dtype}{[*value.shape]}"
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{[*value.shape]}"


def validate_run(run: Any, *, generators: bool = True) -> None:
    """Check that the saved state of a run can be loaded.

    Args:
        run: The state.
        generators: False for states of generators that this process has just read from its own.

    Raises:
        ValueError: A value is missing, or of another kind than a run writes.
    """
    with refusing("a run"):
        found = [*_of_run(run, generators)]
    if found:
        raise ValueError("holds values that no run can resume from: " + "; ".join(found))


def validate_objects(objects: Mapping[str, Any], saved: Mapping[str, Any]) -> list[str]:
    """One line for each value of an optimizer or a schedule with the wrong kind or shape."""
    found = list[str]()
    for name in objects.keys() & saved.keys():
        if isinstance(objects[name], Optimizer):
            if has_groups(objects[name].state_dict()):
                found += _of_optimizer(name, objects[name], saved[name])
        elif isinstance(objects[name], LRScheduler):
            found += _of_schedule(name, objects[name].state_dict(), saved[name])
    return found


def refuse_wrong_values(objects: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Refuse values of a wrong kind or shape; see `validate_objects`."""
    if odd := validate_objects(objects, saved):
        raise ValueError("it holds values that cannot be loaded:\n  " + "\n  ".join(odd))


def reshapes(own: Any) -> bool:
    """True for an object that may give parameters another shape, or an optimizer others, if loaded.

    So do modules with lazy weights or ways of their own, and objects that are neither torch's nor
    an optimizer, such as one that holds a module and adds rows to its weights.
    """
    if isinstance(own, Module):
        return bool(own_ways(own)) or any(map(is_lazy, [*own.parameters(), *own.buffers()]))
    return not isinstance(own, Optimizer) and not type(own).__module__.startswith("torch.")


@contextmanager
def refusing(what: str) -> Generator[None, None, None]:
    """Turn any error inside into a ValueError: a malformed state can cause errors of all kinds."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise ValueError(f"holds a malformed state of {what} ({said})") from error


def _of_run(run: Any, generators: bool) -> Iterator[str]:
    state, fresh = State[Any, Any](), State[Any, Any]()
    state.load_state_dict(run)
    for name, value in run.items():
        own = getattr(fresh, name, getattr(fresh.control, name, None))
        if type(own) is int:
            yield from _count(name, value)
        elif type(own) is bool:
            yield from _kinds(name, own, value)
    for name, count in {**run["counts"], "metrics": state.metrics.writes}.items():
        yield from _count(f"the count of {name}", count)
    yield from _kinds("stop_reason", "", run["stop_reason"])
    yield from _kinds("resumable", True, run["resumable"])
    yield from _kinds("handlers", [], run["handlers"])
    yield from _kinds("settings", {}, run["settings"])
    if any(type(name) is not str for name in (*run["handlers"], *run["settings"], *run["memory"])):
        yield "it has handlers or settings without a name"
    kept = [state.control.completed]
    if (position := state.control.position) is not None:
        yield from _of_position(position, run["position"])
        kept += [position.rng, position.rng_when_left]
    for rng in kept:
        if generators and rng is not None:
            yield from _of_generators(rng)


def _of_position(position: Position, saved: Mapping[str, Any]) -> Iterator[str]:
    if (saved.keys() ^ position.state_dict().keys()) - {"mark", "usual", "parts"}:
        yield f"the position has {sorted(saved)}"
    for name in ("used_up", "at_end"):
        if type(saved[name]) is not bool:
            yield f"position.{name} is neither true nor false"
    for name in ("read_from", "usual"):
        if (count := saved.get(name)) is not None:
            yield from _count(f"position.{name}", count)
    if type(position.parts) is not dict or type(position.mark or "") is not str:
        yield "the position does not say what was consumed"
    yield from _count("position.number", position.number)
    yield from _count("position.began", position.began)
    if type(position.seed) is not int or not -(2**63) <= position.seed < 2**64:
        yield "position.seed is no seed"
    for name, size in position.sizes.items():
        yield from _count(f"position.sizes.{name}", size)
    if position.number and position.dealing is None:
        yield "the position does not say how ranks share the samples"
    for name, size in (saved["dealing"] or {}).items():
        if name == "order":
            yield from _kinds("position.dealing.order", "", size)
        elif size is not None or name != "batch":
            yield from _count(f"position.dealing.{name}", size)


def _of_generators(rng: Rng) -> Iterator[str]:
    set_state(random.Random(), rng.python)
    if rng.torch is not None:
        set_state(torch.Generator(), rng.torch)
    yield from _kinds("the named generators", {}, rng.named)
    for state in (rng.numpy, *rng.generators, *rng.named.values()):
        if isinstance(state, dict):
            yield from _of_numpy(state)


def _of_numpy(state: Mapping[str, Any]) -> Iterator[str]:
    """Check a saved position, since NumPy does not and would read memory beyond its buffer."""
    inner = state["state"]
    for place, limit in ((inner.get("pos", 0), 624), (state.get("buffer_pos", 0), 4)):
        if type(place) is not int or not 0 <= place <= limit:
            yield f"a generator of NumPy is at {repr(place)[:50]}"
            return
    if "key" in inner and (numpy := sys.modules.get("numpy")):
        kind, content = inner["key"]
        key = numpy.frombuffer(content, dtype=kind)
        if state["bit_generator"] == "MT19937" and (key.dtype != numpy.uint32 or len(key) != 624):
            yield "a generator of NumPy has an invalid key"
        elif state["bit_generator"] == "MT19937":
            numpy.random.RandomState().set_state({**state, "state": {**inner, "key": key}})


def _of_optimizer(name: str, optimizer: Optimizer, saved: Any) -> Iterator[str]:
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    indices = [index for group in saved["param_groups"] for index in group["params"]]
    # Torch lets a state have other keys than parameters; its own classes have no numbers as such.
    other, is_torchs = saved["state"].keys() - {*indices}, _is_torchs(optimizer)
    if len(set(indices)) != len(parameters) or (is_torchs and int in map(type, other)):
        yield f"{name!r} has states of other parameters than it has"
        return
    by_index = dict(zip(indices, parameters, strict=True))
    for own, group in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        for key in own.keys() & group.keys() - {"params"}:
            yield from _kinds(f"{name}.{key}", own[key], group[key])
    for index in saved["state"].keys() - other:
        for key, value in saved["state"][index].items():
            if not _fits(optimizer, by_index[index], value):
                shape = list(by_index[index].shape)
                yield f"the state {key!r} in {name!r} does not fit a parameter of shape {shape}"


def _fits(optimizer: Optimizer, parameter: Tensor, value: Any) -> bool:
    module = type(optimizer).__module__
    if not module.startswith("torch.optim.") or isinstance(optimizer, FREE_SHAPES):
        return True  # an optimizer that is not torch's may keep anything
    if is_lazy(parameter):
        return True  # until its module has loaded its shape
    if not isinstance(value, Tensor):
        return value is None or isinstance(value, int | float)
    if value.numel() == 1 and value.ndim == 0:
        return True
    return value.shape == parameter.shape and value.is_complex() == parameter.is_complex()


def _of_schedule(name: str, own: Mapping[str, Any], saved: Any) -> Iterator[str]:
    for key in own.keys() & saved.keys():
        yield from _kinds(f"{name}.{key}", own[key], saved[key])


def _kinds(name: str, own: Any, saved: Any) -> Iterator[str]:
    """A line if a saved value is not of the kind that the script has; None fits every kind."""
    is_alike = type(own) is type(saved) or None in (own, saved)
    if not is_alike and (here := _kind(own)) != (there := _kind(saved)):
        yield f"{name} is {there} in the checkpoint, and needs to be {here}"
    elif isinstance(saved, int) and abs(saved) >= 2**63:
        yield f"{name} is out of range in the checkpoint"


def _count(name: str, saved: Any) -> Iterator[str]:
    if type(saved) is not int or not 0 <= saved < 2**63:
        yield f"{name} is no count: {repr(saved)[:50]}"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float | Tensor):
        return "a number"
    kinds = {str: "text", list: "a list", tuple: "a tuple", dict: "a dict"}
    return next((kind for each, kind in kinds.items() if isinstance(value, each)), "an object")

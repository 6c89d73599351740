"""What prevents loading: names, kinds and shapes that do not fit, values that no run writes.

All of it is found before anything is loaded, so that an error changes nothing.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ....engine import listed
from ....engine.modules import is_spread
from ....engine.state import Rng, State, set_state
from ..directory import StoredTensor
from ..weights import has_groups, named_parameters_of, own_ways, parameter_names, weights

FROM_SCHEDULES = frozenset(
    {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr"}
)
"""Keys that schedulers add to an optimizer's groups."""

EXTRA_STATE = "_extra_state"
"""The key of the value of a module's `get_extra_state`, which may have any kind and shape."""

Groups = Sequence[Mapping[str, Any]]


def mismatches(
    objects: Mapping[str, Any],
    saved: Mapping[str, Any],
    later: Sequence[str] = (),
    added: Mapping[str, Groups] | None = None,
) -> list[str]:
    """One line for each difference that prevents loading, but not of what is compared `later`.

    The groups in `added` come to an optimizer before it is loaded.
    """
    found = list(one_sided("objects", "the engine", objects, saved))
    for name in (objects.keys() & saved.keys()).difference(later):
        found += mismatches_of(name, objects[name], saved[name], (added or {}).get(name, ()))
    return found


def mismatches_of(name: str, own: Any, saved: Mapping[str, Any], added: Groups = ()) -> list[str]:
    """One line for each difference of an object that prevents loading its saved state."""
    if isinstance(own, LRScheduler):
        return list(_unknown(name, own.state_dict(), saved))
    return list(form.mismatches(name, saved, added)) if (form := form_needed(own)) else []


class OfModule(NamedTuple):
    """What has to fit in a module."""

    weights: dict[str, str | None]
    """Their kinds and shapes by plain name; None for what may have any."""
    ways: tuple[str, ...]
    """The beginnings of names that are compared after the module has loaded them in its own way."""

    def mismatches(self, name: str, saved: Mapping[str, Any], added: Groups = ()) -> Iterator[str]:
        """One line for each difference from a saved state; a module has no groups."""
        own, ways = self
        fixed = ([k for k in each if not k.startswith(ways)] for each in (own, saved))
        yield from one_sided(f"weights of {name!r}", "the module", *fixed)
        for key, here in own.items():
            if here is None or key not in saved or key.startswith(ways):
                continue
            if here != (there := _kind_and_shape(saved[key])):
                yield f"weight {key!r} of {name!r}: {there} in the checkpoint, {here} in the module"


class OfOptimizer(NamedTuple):
    """What has to fit in an optimizer."""

    keys: list[str]
    groups: list[tuple[int, set[str]]] | None
    """For each group: how many parameters, and the settings if the class is torch's."""

    def mismatches(self, name: str, saved: Mapping[str, Any], added: Groups = ()) -> Iterator[str]:
        """One line for each difference from a saved state, when these groups are `added`."""
        if (self.groups is not None) != has_groups(saved):
            yield f"{name!r} is of another class: its state has {self.keys}"
        elif self.groups is not None:
            groups = [*self.groups, *((len(each["params"]), set[str]()) for each in added)]
            here = [count for count, _ in groups]
            there = [len(group.get("params", ())) for group in saved["param_groups"]]
            if here != there:
                yield (
                    f"the groups of {name!r} hold {there} parameters in the checkpoint and {here} "
                    "in the optimizer"
                )
                return
            for (_, keys), group in zip(groups, saved["param_groups"], strict=True):
                yield from _unknown(name, keys or group, group)


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
    state, is_torchs = own.state_dict(), type(own).__module__.startswith("torch.")
    # The `step` of a class that is not torch's may add settings.
    groups = [
        (len(group.get("params", ())), {*group} if is_torchs else set[str]())
        for group in (state["param_groups"] if has_groups(state) else ())
    ]
    return OfOptimizer(sorted(map(str, state)), groups if has_groups(state) else None)


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


def counts_of_groups(objects: Mapping[str, Any]) -> dict[str, int]:
    """By optimizer: how many groups it has."""
    return {n: len(e.param_groups) for n, e in objects.items() if isinstance(e, Optimizer)}


def groups_to_add(
    made: int,
    saved: Mapping[str, Any],
    names: Mapping[str, Mapping[str, int]],
    objects: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """The groups of an optimizer's saved state behind those that the script `made`.

    Their parameters are those of the objects that have the saved `names`. None of them if one has
    no name, or is distributed: a state is read by the places of the parameters that are there.
    None of them either if the state is not in torch's form.
    """
    if not has_groups(saved) or not (groups := saved["param_groups"][made:]):
        return []
    found = dict[int, Tensor]()
    for module in names.keys() & objects.keys():
        if isinstance(objects[module], Module):
            own = named_parameters_of(objects[module])
            found |= {n: own[k] for k, n in names[module].items() if k in own}
    numbers = [number for group in groups for number in group.get("params", ())]
    if any(number not in found or is_spread(found[number]) for number in numbers):
        return []
    return [{**group, "params": [found[n] for n in group.get("params", ())]} for group in groups]


def _by_index(names: Mapping[str, int]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for name, index in names.items():
        found.setdefault(index, set()).add(name)  # tied weights have several names
    return found


def one_sided(what: str, place: str, own: Iterable[str], saved: Iterable[str]) -> Iterator[str]:
    """A line of the names in the script alone, and one of those in the checkpoint alone."""
    sides = ((place, {*own}.difference(saved)), ("the checkpoint", {*saved}.difference(own)))
    for where, names in sides:
        if names:
            yield f"{what} only in {where}: {listed(names)}"


def _unknown(name: str, own: Collection[str], saved: Mapping[str, Any]) -> Iterator[str]:
    # New keys are no mismatch: newer versions of torch have more settings.
    if names := saved.keys() - {*own} - FROM_SCHEDULES:
        yield f"{name!r} is of another class: it has no {listed(names)}, which the checkpoint has"


def _kind_and_shape(value: Any) -> str:
    if isinstance(value, StoredTensor):
        return f"{value.info.dtype}{[*value.shape]}"
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{[*value.shape]}"


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


def validate_run(run: Any) -> None:
    """Let a state that is then thrown away take a saved one, so that an error changes nothing.

    Raises:
        ValueError: A value is missing, or of another kind than a run writes.
    """
    with refusing("a run"):
        kinds, state = _kinds_of_run(), State[Any, Any]()
        known = (name for name in run if name in kinds)
        odd = [name for name in known if type(run[name]) not in (kinds[name], type(None))]
        state.load_state_dict(run)
        counts = [run[name] for name, kind in kinds.items() if kind is int]
        kept = [state.control.completed]
        if (position := state.control.position) is not None:
            counts += [position.number, position.began]
            kept += [position.rng, position.rng_when_stored]
        if odd or not all(0 <= count < 2**63 for count in counts):
            raise ValueError(f"holds values that no run can resume from: {odd or counts}")
        for rng in filter(None, kept):
            _try_generators(rng)


@cache
def _kinds_of_run() -> dict[str, type]:
    """The types of a new run's values, by name, without those that are None."""
    fresh = State[Any, Any]().state_dict()
    return {name: type(value) for name, value in fresh.items() if value is not None}


def _try_generators(rng: Rng) -> None:
    """Put states into generators that are then thrown away."""
    set_state(random.Random(), rng.python)
    if rng.torch is not None:
        set_state(torch.Generator(), rng.torch)
    for state in (rng.numpy, *rng.generators, *rng.named.values()):
        if isinstance(state, dict):
            _try_numpy(state)


def _try_numpy(state: Mapping[str, Any]) -> None:
    """Check a saved position, since NumPy does not and would read memory beyond its buffer."""
    inner = state["state"]
    for place, limit in ((inner.get("pos", 0), 624), (state.get("buffer_pos", 0), 4)):
        if type(place) is not int or not 0 <= place <= limit:
            raise ValueError(f"holds a generator of NumPy at {repr(place)[:50]}")
    if "key" in inner and (numpy := sys.modules.get("numpy")):
        kind, content = inner["key"]
        key = numpy.frombuffer(content, dtype=kind)
        if state["bit_generator"] == "MT19937":
            if key.dtype != numpy.uint32 or len(key) != 624:
                raise ValueError("holds a generator of NumPy with an invalid key")
            numpy.random.RandomState().set_state({**state, "state": {**inner, "key": key}})

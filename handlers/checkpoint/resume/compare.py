"""What differs between a checkpoint and a script: settings that changed, and what does not fit."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..frozen import changed
from ..weights import weights
from .settings import ACCUMULATE, LOSS

FROM_SCHEDULES = frozenset(
    {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr"}
)
"""Keys that schedulers add to an optimizer's groups."""

EXTRA_STATE = "_extra_state"
"""The key of the value of a module's `get_extra_state`, which may have any kind and shape."""


@dataclass(frozen=True)
class Change:
    """A setting that differs from the checkpoint's.

    >>> print(Change("optimizer.lr", 0.1, 0.05))
    optimizer.lr: 0.1 in the checkpoint -> 0.05 in the script
    """

    name: str
    old: Any
    new: Any

    @property
    def is_told(self) -> bool:
        """True if the change is only reported: a run may continue with another loss function."""
        return self.name.rpartition(".")[2] in (ACCUMULATE, LOSS)

    def __str__(self) -> str:
        return f"{self.name}: {self.old!r} in the checkpoint -> {self.new!r} in the script"


def changes(saved: Mapping[str, Any], own: Mapping[str, Any]) -> list[Change]:
    """The settings that differ; for names on one side only, see `mismatches`."""
    common = [name for name in own if name in saved]
    return [Change(n, saved[n], own[n]) for n in common if not _equal(saved[n], own[n])]


def is_of(name: str, setting: str) -> bool:
    """True if a name is that of a setting or of its object.

    >>> is_of("optimizer", "optimizer.lr"), is_of("optimizer.lr", "optimizer.lr_decay")
    (True, False)
    """
    return setting == name or setting.startswith(f"{name}.")


def mismatches(
    objects: Mapping[str, Any],
    saved: Mapping[str, Any],
    frozen: Mapping[str, Mapping[str, int]] | None = None,
) -> list[str]:
    """One line for each difference that prevents loading; `frozen` weights were left out."""
    found = list(_names("objects", "the engine", objects, saved))
    for name in objects.keys() & saved.keys():
        if isinstance(objects[name], Module):
            out = (frozen or {}).get(name, {})
            found += _module_mismatches(name, objects[name], saved[name], out)
        elif isinstance(objects[name], Optimizer):
            if has_groups(own := objects[name].state_dict()) != has_groups(saved[name]):
                found += [f"{name!r} is of another class: its state has {sorted(own)}"]
            elif has_groups(own):
                found += _optimizer_mismatches(name, objects[name], saved[name])
        elif isinstance(objects[name], LRScheduler):
            found += _unknown(name, objects[name].state_dict(), saved[name])
    return found


def has_groups(saved: Any) -> bool:
    """True for a state in torch's form; an optimizer that wraps others may have another form."""
    return {"state", "param_groups"} <= {*saved}


def of_another_class(objects: Mapping[str, Any], saved: Mapping[str, Any]) -> list[str]:
    """The optimizers and schedules into which the saved ones cannot be loaded."""
    stepped = (Optimizer, LRScheduler)
    names = [name for name in objects if name in saved and isinstance(objects[name], stepped)]
    return [name for name in names if mismatches({name: objects[name]}, {name: saved[name]})]


def memory_mismatches(unclaimed: Sequence[str], new: Sequence[str]) -> list[str]:
    """The lines about saved memories without a handler, and about the script's new handlers."""
    return list(_names("handlers", "the script", new, unclaimed)) if unclaimed else []


def _equal(a: Any, b: Any) -> bool:
    a, b = (each.tolist() if isinstance(each, Tensor) else each for each in (a, b))
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)


def _names(what: str, place: str, own: Collection[str], saved: Collection[str]) -> Iterator[str]:
    sides = ((place, set(own).difference(saved)), ("the checkpoint", set(saved).difference(own)))
    for where, names in sides:
        if names:
            yield f"{what} only in {where}: {', '.join(map(repr, sorted(names)))}"


def _module_mismatches(
    name: str, module: Module, saved: Mapping[str, Any], frozen: Mapping[str, int]
) -> Iterator[str]:
    own, glance = weights(module), getattr(saved, "glance", saved.__getitem__)
    yield from _names(f"weights of {name!r}", "the module", own, {*saved, *frozen})
    if others := changed(module, {key: frozen[key] for key in frozen if key in own}):
        yield (
            f"{len(others)} frozen weights of {name!r}, such as {others[0]!r}, are not those of "
            "the run, and the checkpoint does not hold them: make the model of the same ones"
        )
    for key in own.keys() & saved.keys():
        if is_lazy(own[key]) or key.rpartition(".")[2] == EXTRA_STATE:
            continue
        here, there = _kind(own[key]), _kind(glance(key))
        if here != there:
            yield f"weight {key!r} of {name!r}: {there} in the checkpoint, {here} in the module"


def _optimizer_mismatches(
    name: str, optimizer: Optimizer, saved: Mapping[str, Any]
) -> Iterator[str]:
    own = optimizer.state_dict()["param_groups"]
    here = [len(group["params"]) for group in own]
    there = [len(group["params"]) for group in saved["param_groups"]]
    if here != there:
        yield (
            f"the groups of {name!r} hold {there} parameters in the checkpoint and {here} in the "
            "optimizer"
        )
        return
    if not type(optimizer).__module__.startswith("torch."):
        return  # its `step` may add values to groups
    for group, saved_group in zip(own, saved["param_groups"], strict=True):
        yield from _unknown(name, group, saved_group)


def _unknown(name: str, own: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterator[str]:
    # New keys are no mismatch: newer versions of torch have more settings.
    if names := saved.keys() - own.keys() - FROM_SCHEDULES:
        listed = ", ".join(map(repr, sorted(names)))
        yield f"{name!r} is of another class: it has no {listed}, which the checkpoint has"


def _kind(value: Any) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"

"""What of a checkpoint does not fit the objects it should be loaded into."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..weights import weights

FROM_SCHEDULES = frozenset(
    {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr"}
)
"""What schedules note in the groups of an optimizer; one without a schedule does not have it."""

EXTRA_STATE = "_extra_state"
"""Where torch keeps what a module's `get_extra_state` gave, of whatever kind and shape."""


def mismatches(objects: Mapping[str, Any], saved: Mapping[str, Any]) -> list[str]:
    """One line for each thing that differs, none if all of it can be loaded.

    >>> mismatches({"model": None}, {"modle": None})
    ["objects only in the engine: 'model'", "objects only in the checkpoint: 'modle'"]
    """
    found = list(_names("objects", "the engine", objects, saved))
    for name in objects.keys() & saved.keys():
        if isinstance(objects[name], Module):
            found += _of_module(name, objects[name], saved[name])
        elif isinstance(objects[name], Optimizer):
            found += _of_optimizer(name, objects[name], saved[name])
        elif isinstance(objects[name], LRScheduler):
            found += _unknown(name, objects[name].state_dict(), saved[name])
    return found


def memory_mismatches(unclaimed: Sequence[str], new: Sequence[str]) -> list[str]:
    """What handlers remembered and nobody can claim, beside those who might.

    >>> memory_mismatches([], ["ProgressBar"])
    []
    """
    return list(_names("handlers", "the script", new, unclaimed)) if unclaimed else []


def _names(what: str, place: str, own: Collection[str], saved: Collection[str]) -> Iterator[str]:
    sides = ((place, set(own).difference(saved)), ("the checkpoint", set(saved).difference(own)))
    for where, names in sides:
        if names:
            yield f"{what} only in {where}: {', '.join(map(repr, sorted(names)))}"


def _of_module(name: str, module: Module, saved: Mapping[str, Any]) -> Iterator[str]:
    own = weights(module)
    yield from _names(f"weights of {name!r}", "the module", own, saved)
    for key in own.keys() & saved.keys():
        if is_lazy(own[key]) or key.rpartition(".")[2] == EXTRA_STATE:
            continue
        here, there = _kind(own[key]), _kind(saved[key])
        if here != there:
            yield f"weight {key!r} of {name!r}: {there} in the checkpoint, {here} in the module"


def _of_optimizer(name: str, optimizer: Optimizer, saved: Mapping[str, Any]) -> Iterator[str]:
    own = optimizer.state_dict()["param_groups"]
    here = [len(group["params"]) for group in own]
    there = [len(group["params"]) for group in saved["param_groups"]]
    if here != there:
        yield (
            f"the groups of {name!r} hold {there} parameters in the checkpoint and {here} in the "
            "optimizer"
        )
        return
    for group, saved_group in zip(own, saved["param_groups"], strict=True):
        yield from _unknown(name, group, saved_group)


def _unknown(name: str, own: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterator[str]:
    # The other way round is no misfit: newer versions of torch know more settings.
    if names := saved.keys() - own.keys() - FROM_SCHEDULES:
        listed = ", ".join(map(repr, sorted(names)))
        yield f"{name!r} is of another class: it has no {listed}, which the checkpoint has"


def _kind(value: Any) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"

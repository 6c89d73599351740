"""The settings of a script that a checkpoint saves, for the comparison when it is resumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from enum import Enum
from numbers import Number
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ....engine import State, label, of_machine, of_software
from ....engine.modules import is_copy, moves, without_wrappers
from ....engine.supervised import Supervised
from ....engine.update import Optimizers, Update
from ...common import given

PROGRESS = frozenset(
    {
        *("last_epoch", "_step_count", "_last_lr", "_is_initial", "_get_lr_called_within_step"),
        *("T_cur", "T_i", "best", "num_bad_epochs", "cooldown_counter", "epochs", "metric"),
        "course",
    }
)
"""Keys of a scheduler's state_dict that are progress, not settings."""

BASES = ("base_lrs", "bases", "base_values")
"""Keys of a scheduler's state_dict that repeat its optimizer's settings."""

ACCUMULATE, EPOCH_LENGTH, SUPERVISED = "accumulate", "epoch_length", "supervised"
"""Settings of updates and of `run`, and all those of `supervised`, are compared and may differ."""

LARGEST = 1_000
"""How many numbers an option of a loss function may have to be compared, such as class weights."""

LAYERS = "layers"
"""What torch's layers in a module are, such as `Dropout(p=0.1)`, is compared and may differ."""

PROCESS = "process"
"""What the names of settings begin with that are no script's: they decide how sums round."""


def remember_settings(state: State[Any, Any]) -> None:
    """Remember the script's settings, to be saved, unless the run has some already."""
    control, steps = state.control, settings_of_steps(state.engine.handlers)
    # No real run resumes a trial run; and epochs of another length are other epochs.
    limit = {"max_batches": control.max_batches, "epoch_length": control.epoch_length}
    process = {f"{PROCESS}.{n}": text for n, text in (of_software() | of_machine()).items()}
    own = settings_of(state.engine.objects) | steps | limit | process
    control.settings = control.settings or own


def settings_of(objects: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of new optimizers, schedulers and modules, by name.

    A scheduler changes `lr` when it is made, so `lr` is the value that it was given: `initial_lr`.
    Functions, such as those of `LambdaLR`, cannot be compared and are left out.
    """
    found: dict[str, Any] = {}
    for name, each in objects.items():
        if isinstance(each, Optimizer):
            own = dict(_of_groups(each.param_groups))
        elif isinstance(each, LRScheduler):
            own = dict(_of_schedule(each.state_dict()))
            # An optimizer that is among the objects has the rates.
            if any(isinstance(o, Optimizer) and moves(each, o) for o in objects.values()):
                own = {key: own[key] for key in own if key.rpartition(".")[2] not in BASES}
            if isinstance(each.optimizer, Optimizers):  # whose groups it knows by their order
                own["optimizers"] = [*each.optimizer.named]
        elif isinstance(each, Module):
            if not is_copy(each):  # one of a sharded model has no layers
                found[f"{name}.{LAYERS}"] = dict(Counter(_layers(each)))
            continue
        else:
            continue
        found[f"{name}.class"] = type(each).__name__
        found |= {f"{name}.{key}": deepcopy(own[key]) for key in own if _is_plain(own[key])}
    return found


def settings_of_steps(handlers: Mapping[str, Any]) -> dict[str, Any]:
    """How the script makes a step: the batches of each `Update`, and what `supervised` was told."""
    found: dict[str, Any] = {}
    for name, each in handlers.items():
        if isinstance(each, Update):
            found[f"{name}.{ACCUMULATE}"] = each.accumulate
            if isinstance(each.optimizer, Optimizers):  # norms are summed in their order
                found[f"{name}.optimizers"] = [*each.optimizer.named]
        elif isinstance(each, Supervised):
            weight = label(each.weight) if callable(each.weight) else each.weight
            precision = None if each.autocast is None else str(each.autocast.fast_dtype)
            found |= {f"{SUPERVISED}.loss_fn.{key}": n for key, n in _options(each.loss_fn)}
            found |= {
                f"{SUPERVISED}.loss_fn": label(each.loss_fn),
                f"{SUPERVISED}.weight": weight,
                f"{SUPERVISED}.precision": precision,
                f"{SUPERVISED}.split": each.split,
                f"{SUPERVISED}.compile": each.compiled is not None,
            }
    return found


def _options(loss_fn: Any) -> Iterator[tuple[str, Any]]:
    """What a loss function was made with: of a `partial`, or as a module's attributes."""
    own = getattr(loss_fn, "keywords", {})
    if isinstance(loss_fn, Module):
        own = {**vars(loss_fn), **vars(loss_fn)["_buffers"]}  # such as class weights, or None
    for key, value in own.items():
        is_large = isinstance(value, Tensor) and value.numel() > LARGEST
        if not key.startswith("_") and key != "training" and _is_plain(value) and not is_large:
            yield key, deepcopy(value)


def _layers(module: Module) -> Iterator[str]:
    """A text for each layer of torch in a module, without what wrappers and subclasses add."""
    for each in module.modules():
        torchs = (k for k in type(each).__mro__ if k.__module__.startswith("torch.nn.modules"))
        kind: Any = next(torchs)
        with suppress(AttributeError):  # a subclass may lack what its base tells
            if options := kind.extra_repr(each):
                yield f"{kind.__name__}({options})"


def _of_groups(groups: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    for number, group in enumerate(groups):
        prefix = "" if len(groups) == 1 else f"{number}."
        for key, value in given(group).items():
            if key == "param_names":  # a wrapped model has longer names
                yield f"{prefix}{key}", [_short(name) for name in value]
            elif key != "params":
                yield f"{prefix}{key}", value


def _short(name: str) -> str:
    return ".".join(word for word in without_wrappers(name).split(".") if word != "module")


def _of_schedule(saved: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in saved.items():
        if key == "_schedulers":
            for number, inner in enumerate(value):
                yield from ((f"{number}.{name}", item) for name, item in _of_schedule(inner))
        elif key not in PROGRESS:
            yield key, value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, Mapping):
        return all(map(_is_plain, [*value, *value.values()]))
    if isinstance(value, Enum):  # also one of text or numbers: a checkpoint holds none
        return False
    return value is None or isinstance(value, Number | str | Tensor)

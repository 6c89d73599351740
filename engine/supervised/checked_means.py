"""Losses that are no mean over the samples of a batch: one warning each."""

from __future__ import annotations

import dis
import inspect
import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import CrossEntropyLoss, Module, NLLLoss, functional

from ..checks import warn
from ..means import samples_of
from ..outputs import IGNORED, Output
from ..state import capture_generators, restore_generators
from .loss_parts import split_loss
from .nested import map_tensors, tensors_of

Shape = tuple[int, ...]
STORES = {"IMPORT_NAME", "STORE_ATTR", "STORE_DEREF", "STORE_GLOBAL", "STORE_SUBSCR"}
"""Operations of Python by which a function may change what is outside of it."""
FILLS = {"add", "append", "appendleft", "extend", "insert", "next", "open", "pop", "push", "update"}
BY_CLASSES = (functional.cross_entropy, functional.nll_loss)
"""Their means are over the weights of the targets' classes; those of other losses, over targets."""


def is_a_sum(loss_fn: Any, weight: Any) -> bool:
    """True for a loss function with `reduction="sum"`, as attribute or in a `partial`.

    Such a loss grows with the batch: this warns if no weight says what it is a sum over.
    """
    is_sum: bool = _option(loss_fn, "reduction") == "sum"
    if is_sum and weight is None:
        warn(
            "loss_fn is a sum over the batch, so larger batches take larger steps, and 'val/loss' "
            "is a mean of sums; say how many targets it is a sum over, weight=lambda output: "
            "output.target.numel(), or weight=1 if that is what you want"
        )
    return is_sum


def _option(loss_fn: Any, name: str, otherwise: Any = None) -> Any:
    """An option of a loss function, as attribute or in a `partial`."""
    given = getattr(loss_fn, "keywords", {})
    return given.get(name, getattr(loss_fn, name, otherwise))


def check_parts(loss_fn: Any, target: Any, counts: str) -> bool:
    """Warn if a step is made of several parts, and their losses are means over some targets.

    Returns:
        True if it has warned.

    Args:
        loss_fn: The loss function.
        target: The target of a batch.
        counts: What is a part of a step, and how it counts.
    """
    if not isinstance(target, Tensor) or target.is_floating_point():
        return False
    ignored = _option(loss_fn, "ignore_index", IGNORED)
    is_torchs = getattr(loss_fn, "func", loss_fn) in BY_CLASSES
    by_classes = is_torchs or isinstance(loss_fn, CrossEntropyLoss | NLLLoss)
    if by_classes and _option(loss_fn, "weight") is not None:
        over = "over targets by the weights of their classes"
        count = "lambda output: class_weights[output.target].sum()"
    elif isinstance(ignored, int) and (target == ignored).any():
        over = f"over the targets that are not {ignored}"
        count = f"lambda output: (output.target != {ignored}).sum()"
        count = "count_tokens" if ignored == IGNORED else count
    else:
        return False
    warn(
        f"the loss is a mean {over}, and {counts}: the step is not that of one large batch. Say "
        f"what to count: supervised(..., weight={count})"
    )
    return True


def check_split_loss(loss_fn: Any, output: Output) -> None:
    """Warn if the loss of a few samples is not the mean of the losses of their halves.

    Such a loss is a sum, is a mean over something else than samples, or compares samples.
    """
    made = output.prediction if output.model_output is None else output.model_output
    count = min(samples_of(output) or 0, 4) // 2 * 2
    tensors = tensors_of((made, output.target))
    if not count or not _is_pure(loss_fn, set()):
        return
    edges = ((0, count), (0, count), (0, count // 2), (count // 2, count))
    rng, found = capture_generators(), list[float]()
    with suppress(Exception), torch.no_grad():  # it may need more samples
        parts = (_rows((made, output.target), *each) for each in edges)
        found = [float(split_loss(loss_fn(*each))[0]) for each in parts]
    restore_generators(rng)
    if not found:
        return
    (whole, again), mean = found[:2], sum(found[2:]) / 2
    tolerance = 0.02 if any(each.element_size() == 2 for each in tensors) else 1e-4
    # A loss that draws random numbers is another one at its second call.
    if whole == again and not math.isclose(whole, mean, rel_tol=tolerance, abs_tol=1e-6):
        warn(
            f"split= takes the loss for a mean over samples, and that of {count} samples is "
            f"{whole:.6g}, where the mean of its two halves is {mean:.6g}: the step is not "
            "that of the whole batch. Divide a sum by len(target); say by weight= what else "
            "the loss is a mean over; and for one that compares the samples of a batch, such "
            "as a contrastive loss or Dice over the batch, make batches smaller instead"
        )


def _is_pure(used: Any, seen: set[int]) -> bool:
    """True if a call leaves nothing behind, such as a queue of what a loss function has had.

    Such a function writes nothing, and uses torch, tensors, numbers and functions like it.
    """
    used = inspect.unwrap(getattr(used, "func", used))
    if used is None or isinstance(used, Tensor | str | int | float) or id(used) in seen:
        return True
    seen.add(id(used))
    if isinstance(used, Module):
        parts = [*used.modules()]
        kinds = {kind for each in parts for kind in type(each).__mro__ if not _is_torchs(kind)}
        named = [item for each in (*kinds - {object}, *parts) for item in vars(each).items()]
        return not used.state_dict() and all(
            _is_pure(each, seen) for name, each in named if not name.startswith("_")
        )
    if _is_torchs(used) or not inspect.isfunction(used):
        return _is_torchs(used)
    codes = [used.__code__]
    for code in codes:  # and those inside of it
        codes += [each for each in code.co_consts if inspect.iscode(each)]
    names = {name for code in codes for name in code.co_names}
    done = {each.opname for code in codes for each in dis.get_instructions(code)}
    if done & STORES or names & FILLS or any(name.endswith("_") for name in names):
        return False
    outside = [used.__globals__[name] for name in names if name in used.__globals__]
    outside += [cell.cell_contents for cell in used.__closure__ or ()]
    return all(_is_pure(each, seen) for each in (*outside, *(used.__defaults__ or ())))


def _is_torchs(used: Any) -> bool:
    home = getattr(used, "__module__", None) or getattr(used, "__name__", "")
    return str(home).split(".")[0] in {"torch", "math"}


def _rows(nested: Any, start: int, end: int) -> Any:
    # A copy, since the function may write into it.
    return map_tensors(nested, lambda each: each[start:end].clone() if each.ndim else each)


@dataclass(slots=True)
class Shapes:
    """The shapes of an evaluation's targets, to find out whether their first dimension is time."""

    first: Shape = ()
    latest: Shape = ()
    count: int = 0
    is_even: bool = True
    """True while all but the latest have the same second dimension."""
    lengths: set[int] = field(default_factory=set)
    """Their first dimensions."""

    def add(self, output: Output) -> None:
        """Note a batch."""
        counted = output.target if isinstance(output.target, Tensor) else output.prediction
        if not isinstance(counted, Tensor) or counted.ndim < 2:
            return
        self.count += 1
        shape = tuple(counted.shape[:2])
        self.first = self.first or shape
        self.is_even &= self.count < 2 or self.latest[1] == self.first[1]
        self.latest = shape
        self.lengths.add(shape[0])

    def check(self, data: Any) -> None:
        """Warn if the last batch is smaller in its second dimension: samples are then second."""
        if self.count < 2 or not self.is_even or self.latest[1] >= self.first[1]:
            return
        if hasattr(data, "batch_size"):  # of a loader, it says which dimension that is
            is_time_first = data.batch_size == self.first[1] != self.first[0]
        else:
            is_time_first = len(self.lengths) == 1
        if is_time_first:
            warn(
                f"the targets of a batch are {list(self.first)}, and of the last one "
                f"{list(self.latest)}: so samples are the second dimension, and each batch counts "
                "by its first. Say what the loss is a mean over: supervised(..., "
                "weight=lambda output: output.target.numel()), or output.target.shape[1]"
            )

"""Samples: left out, trained on and evaluated, measured by one batch alone, in order of classes."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from contextlib import suppress
from typing import Any

from ..events import Events
from ..explain import warn
from .checked import After, Check, Checked

FEWEST, TOGETHER = 4, 16
"""How many samples two batches need, each and together, to have one class each not by chance."""

DEEPEST = 8
"""How many wrappers around a data set are looked into."""


def check_dropped(run: Checked) -> None:
    """Warn if a loader with `drop_last=True` leaves samples out of an evaluation."""
    batches = getattr(run.state.control.data, "batch_sampler", None)
    size, ones = getattr(batches, "batch_size", None), getattr(batches, "sampler", None)
    if getattr(batches, "drop_last", False) is not True or not isinstance(size, int):
        return
    samples = len(ones) if isinstance(ones, Sized) else 0
    is_whole = run.state.epoch_length == samples // size  # and not cut by epoch_length=
    if is_whole and (left := samples % size):
        warn(
            f"this evaluation leaves out {left} of its {samples} samples, since its loader has "
            "drop_last=True: make a loader without it for evaluations and predictions"
        )


def warn_of_shared(training: object, evaluation: object) -> None:
    """Warn if an evaluation has some of the samples of the training, as after two random splits.

    If it has no others, it measures the training on purpose.
    """
    one, two = _chosen(training), _chosen(evaluation)
    if one and two and one[0] is two[0] and 0 < (shared := len(one[1] & two[1])) < len(two[1]):
        warn(
            f"{shared:,} of the {len(two[1]):,} samples of the evaluation are also trained on, so "
            "that its metrics are too good: take both parts from one split, such as "
            "train, val = random_split(dataset, [0.9, 0.1])"
        )


def _chosen(data: Any) -> tuple[Any, set[int]] | None:
    """A data set, and the indices of its samples that a loader takes; None if it takes all."""
    dataset: Any = getattr(data, "dataset", None)
    indices: Any = getattr(getattr(data, "sampler", None), "indices", None)
    with suppress(TypeError, LookupError):  # a library may call something else so
        for _ in range(DEEPEST):  # such as a Subset in a data set with transforms of its own
            if (inner := getattr(dataset, "indices", None)) is not None:
                indices = inner if indices is None else [inner[each] for each in indices]
            names = [name for name in ("dataset", "subset") if hasattr(dataset, name)]
            if not names:
                break
            dataset = getattr(dataset, names[0])
        if indices is not None:
            return dataset, {*(indices.tolist() if hasattr(indices, "tolist") else indices)}
    return None


def check_averaged(run: Checked) -> Check:
    """Warn of a metric that each batch of an evaluation writes, and no handler averages.

    There is no warning if a function has a memory, since it may keep a running mean there.
    """
    yield (Events.EPOCH_COMPLETED,)
    state, metrics = run.state, run.state.metrics
    writes = metrics.writes  # up to the last batch, before the handlers after the batches
    yield (After(Events.COMPLETED),)
    memories = (*state.memory.saved, *state.memory.unsaved)
    if state.iteration < 2 or any(each.endswith(("()", "engine.process")) for each in memories):
        return
    for name in metrics:
        is_of_batch = metrics.written(name) <= writes and metrics.is_fresh(name)
        if is_of_batch and _is_measured(metrics[name]):
            warn(
                f"the metric {name!r} of an evaluation is that of its last batch alone: the "
                "process function writes it for each batch, and no handler averages it. "
                f"engine.add(Average({name!r})) makes it the mean over all samples"
            )


def _is_measured(value: Any) -> bool:
    """True for a float or a floating-point tensor of one number; false for a count."""
    is_floating = getattr(value, "is_floating_point", lambda: isinstance(value, float))
    return getattr(value, "ndim", 0) == 0 and is_floating()


def check_order(run: Checked) -> Check:
    """Warn if the first and the last batch of an epoch have one class each, and not the same."""
    yield (After(Events.ITERATION_COMPLETED),)
    first, count = _only_class(run.state)
    if not count:
        return
    yield from run.first_epoch()
    last, others = _only_class(run.state)
    if others and first != last and count + others >= TOGETHER:
        warn(
            f"all targets of the epoch's first batch are {first}, and all of its last one {last}: "
            "the data come in the order of their classes, so that a model learns the latest ones "
            "and forgets the others. Shuffle them: loader(..., training=True), or "
            "DataLoader(..., shuffle=True)"
        )


def _only_class(state: Any) -> tuple[Any, int]:
    """The class of all samples of a batch and how many these are; None and 0 if there are more."""
    batch = target = state.batch
    if isinstance(batch, Sequence) and len(batch) == 2:
        target = batch[1]
    elif hasattr(state.output, "target"):
        target = state.output.target
    is_at_hand = getattr(target, "is_cpu", False) and target.ndim == 1  # it waits for no device
    if not is_at_hand or target.is_floating_point() or len(target) < FEWEST:
        return None, 0
    one = target[0]
    return (one.item(), len(target)) if (target == one).all() else (None, 0)

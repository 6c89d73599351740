"""Training data in the order of their classes: one warning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..events import Events
from ..explain import warn
from .checked import After, Check, Checked

FEWEST, TOGETHER = 4, 16
"""How many samples two batches need, each and together, to have one class each not by chance."""


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
    if hasattr(state.output, "target"):
        target = state.output.target
    elif isinstance(batch, Sequence) and len(batch) == 2:
        target = batch[1]
    is_of_classes = getattr(target, "ndim", 0) == 1 and hasattr(target, "is_floating_point")
    if not is_of_classes or target.is_floating_point() or len(target) < FEWEST:
        return None, 0
    one = target[0]
    return (one.item(), len(target)) if (target == one).all() else (None, 0)

"""Metrics of an evaluation that are those of its last batch."""

from __future__ import annotations

from typing import Any

from ..state import State
from .warn import warn


def check_evaluated(state: State[Any, Any], writes: int) -> None:
    """Warn of a metric that each batch of an evaluation has written, and that nothing averaged.

    A function with a memory may keep a running mean there, which is right as it is.

    Args:
        state: An evaluation that is over.
        writes: `state.metrics.writes` after the last batch, before what follows the batches.
    """
    memories = (*state.memory.saved, *state.memory.unsaved)
    if state.iteration < 2 or any(each.endswith(("()", "engine.process")) for each in memories):
        return
    metrics = state.metrics
    last = [name for name in metrics if metrics.written(name) <= writes and metrics.is_fresh(name)]
    for name in last:
        if _is_measured(metrics[name]):
            warn(
                f"the metric {name!r} of an evaluation is that of its last batch alone: the "
                "process function writes it for each batch, and no handler averages it. "
                f"engine.add(Average({name!r})) makes it the mean over all samples"
            )


def _is_measured(value: Any) -> bool:
    """True for a number that is no count: a float, or a tensor with one of floating point."""
    is_one = getattr(value, "ndim", 0) == 0
    floating = getattr(value, "is_floating_point", None)
    return isinstance(value, float) or (is_one and floating is not None and floating())

"""Metrics of an evaluation that are those of its last batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..events import Events
from ..explain import warn
from ..state import State

if TYPE_CHECKING:
    from ..moments import Moments


class Evaluated:
    """Warns of a metric that each batch of an evaluation has written, and that nothing averaged.

    A function with a memory may keep a running mean there, which is right as it is.

    Args:
        moments: Those of an evaluation.
    """

    def __init__(self, moments: Moments) -> None:
        self._writes = 0
        """The writes of metrics up to the last batch, before what follows the batches."""
        moments.add_check(Events.EPOCH_COMPLETED, self._note)
        moments.add_check(Events.COMPLETED, self._check, last=True)

    def _note(self, state: State[Any, Any]) -> None:
        self._writes = state.metrics.writes

    def _check(self, state: State[Any, Any]) -> None:
        memories = (*state.memory.saved, *state.memory.unsaved)
        if state.iteration < 2 or any(each.endswith(("()", "engine.process")) for each in memories):
            return
        metrics = state.metrics
        last = [
            name
            for name in metrics
            if metrics.written(name) <= self._writes and metrics.is_fresh(name)
        ]
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

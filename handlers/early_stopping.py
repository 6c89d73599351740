"""Early stopping."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

from ..engine import ranks
from ..engine.engine import Engine
from ..engine.events import EventEnum, Events, Trigger
from ..engine.state.state import State
from .common import Mode, mode_of

logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class EarlyStopping:
    """Stop the run when a metric has not improved for `patience` looks in a row.

    NaN is no improvement, and a tie is none. All ranks go by rank 0's value. The best value and
    the count are saved with the run, and a run that was stopped stays stopped when its script is
    started again.

    Args:
        monitor: The metric, such as `"val/loss"`.
        mode: `"min"` if smaller is better, `"max"` if larger is; it has to be said for a name such
            as `"val/accuracy"`.
        patience: Looks without improvement that stop the run.
        min_delta: What a value must be better by to count as an improvement.
        when: When to look.
        allow_stale: True to look more often than is measured: a look that finds no new value counts
            for nothing, and one that finds a value of an earlier iteration takes it. By default
            both are errors, as is a metric that nothing has produced so far.

    >>> EarlyStopping("val/accuracy", mode="max", patience=0)
    Traceback (most recent call last):
    ...
    ValueError: EarlyStopping(patience=0): needs a number of looks, from 1
    """

    monitor: str
    mode: Mode | None = None
    patience: int = 3
    min_delta: float = 0.0
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED
    allow_stale: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not isinstance(self.monitor, str):
            raise TypeError(f"EarlyStopping({self.monitor!r}): needs the name of a metric")
        if not isinstance(self.patience, int):
            raise TypeError(f"EarlyStopping(patience={self.patience!r}): needs a whole number")
        object.__setattr__(self, "mode", mode_of("EarlyStopping", self.monitor, self.mode))
        if self.patience < 1:
            raise ValueError(
                f"EarlyStopping(patience={self.patience}): needs a number of looks, from 1"
            )
        if not self.min_delta >= 0:
            raise ValueError(f"EarlyStopping(min_delta={self.min_delta}): needs 0 or more")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Look when the trigger fires."""
        engine.on(self.when)(self.look)

    def look(self, state: State[Any, Any]) -> None:
        """Compare the metric with the best so far."""
        patience = state.recall(self, Patience)
        metrics, last = state.metrics, patience.looked_at
        if not metrics.is_new(self.monitor, last, allow_stale=self.allow_stale):
            return
        patience.looked_at = metrics.written(self.monitor)
        value = ranks.agreed(float(metrics[self.monitor]))
        if math.isnan(value):
            logger.warning("EarlyStopping: %s is NaN, which is no improvement", self.monitor)
        if self._improves(value, patience.best):
            patience.best, patience.waited = value, 0
            return
        patience.waited += 1
        if patience.waited >= self.patience:
            state.stop(f"early stopping: {self.monitor} {_waited(patience)}")

    def _improves(self, value: float, best: float | None) -> bool:
        if math.isnan(value):
            return False
        if best is None:
            return True
        return (
            value < best - self.min_delta if self.mode == "min" else value > best + self.min_delta
        )


def _waited(patience: Patience) -> str:
    if patience.best is None:
        return f"was no number in {patience.waited} looks"
    return f"has not improved on {patience.best:.6g} in {patience.waited} looks"


@dataclass
class Patience:
    """The best value so far, and how many looks have found nothing better."""

    best: float | None = None
    waited: int = 0
    looked_at: int = 0

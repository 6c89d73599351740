"""Early stopping."""

from __future__ import annotations

import logging
import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

from ..engine import Engine, EventEnum, Events, State, Trigger
from ..engine.checks import warn
from ..engine.state import whole_number
from .common import Mode, Monitored, is_better, mode_of

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class EarlyStopping:
    """Stop the run when a metric has not improved for `patience` looks in a row.

    NaN and a value equal to the best one are no improvement. All ranks use rank 0's value. The best
    value and the count are saved with the run, and a run that was stopped stays stopped when its
    script is started again.

    Args:
        metric: The metric, such as `"val/loss"`.
        mode: `"min"` if smaller is better, the default, or `"max"` if larger is; required for a
            name such as `"val/accuracy"`.
        patience: The number of looks in a row without improvement that stops the run.
        min_delta: The smallest difference from the best value that counts as an improvement.
        when: When to look.
        allow_stale: True to look more often than the metric is measured: a look that finds no new
            value is not counted, and a value of an earlier iteration is accepted. By default both
            are errors, except at the end of the run, and so is a metric that has no value yet.

    >>> EarlyStopping("val/accuracy", mode="max", patience=0)
    Traceback (most recent call last):
    ...
    ValueError: patience=0: needs a number from 1
    """

    metric: str
    _: KW_ONLY
    mode: Mode | None = None
    patience: int = 3
    min_delta: float = 0.0
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED
    allow_stale: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", mode_of("EarlyStopping", self.metric, self.mode))
        object.__setattr__(self, "patience", whole_number("patience", self.patience, 1))
        if not self.min_delta >= 0:
            raise ValueError(f"EarlyStopping(min_delta={self.min_delta}): needs 0 or more")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Look when the trigger fires."""
        engine.on(self.when)(self.look)
        if self.allow_stale:
            engine.on(Events.COMPLETED)(self.end)

    def end(self, state: State[Any, Any]) -> None:
        """Warn if the run is over and the metric never came."""
        if self.metric not in state.metrics:
            warn(f"EarlyStopping waited in vain: {state.metrics.missing(self.metric)}")

    def look(self, state: State[Any, Any]) -> None:
        """Compare the metric with the best so far."""
        patience = state.recall(self, Patience)
        value = patience.new_value(state, self.metric, allow_stale=self.allow_stale)
        if value is None:
            return
        if math.isnan(value):
            logger.warning("EarlyStopping: %s is NaN, which is no improvement", self.metric)
        if is_better(value, patience.best, self.mode, self.min_delta):
            patience.best, patience.waited = value, 0
            return
        patience.waited += 1
        if patience.waited >= self.patience:
            best = patience.best
            waited = "was NaN" if best is None else f"has not improved on {best:.6g}"
            looks = "look" if patience.waited == 1 else "looks"
            state.stop(f"early stopping: {self.metric} {waited} in {patience.waited} {looks}")


@dataclass
class Patience(Monitored):
    """The best value so far, and the number of looks since then."""

    best: float | None = None
    waited: int = 0

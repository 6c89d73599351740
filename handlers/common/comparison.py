"""Decisions by a metric: its new value, and whether that is better, or no number at all."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...engine import Events, State, ranks
from ...engine.state import End, as_float, under_way

logger: logging.Logger = logging.getLogger("camshaft")

Mode = Literal["min", "max"]

WEIGHTS_OF = "of_iteration"
"""The name, after a prefix, of the iteration whose weights the metrics with that prefix measure; it
is there if they were measured elsewhere."""
LARGER_IS_BETTER = {
    *("acc", "accuracy", "auc", "auroc", "bleu", "dice", "f1", "iou", "map", "miou", "precision"),
    *("psnr", "r2", "recall", "rouge", "ssim"),
}


def mode_of(kind: str, metric: str, mode: Mode | None) -> Mode:
    """The given mode; without one "min", unless the metric has a name such as "accuracy".

    Raises:
        TypeError: `metric` is not a name.
        ValueError: `mode` is neither "min" nor "max", or has to be given for this metric.

    >>> mode_of("EarlyStopping", "val/loss", None)
    'min'
    """
    check_metric(kind, metric)
    if mode is None:
        if not mostly_better_larger(metric):
            return "min"
        raise ValueError(
            f"{kind}({metric!r}): a metric of this name is mostly better when it is larger, and "
            "without mode= smaller is better; say which: mode='max' or mode='min'"
        )
    if mode not in ("min", "max"):
        raise ValueError(f"{kind}(mode={mode!r}): needs 'min' or 'max'")
    return mode


def mostly_better_larger(metric: str) -> bool:
    """True for a name such as `"val/accuracy"`; false for `"val/dice_loss"`."""
    words = {*re.split(r"[^a-z0-9]+", metric.lower())}
    return bool(words & LARGER_IS_BETTER) and words.isdisjoint(("error", "loss"))


def check_metric(kind: str, metric: object) -> None:
    """Refuse a metric that is not given by its name."""
    if not isinstance(metric, str):
        raise TypeError(f"{kind}({metric!r}): needs the name of a metric")


def is_better(value: float, best: float | None, mode: Mode | None, by: float = 0.0) -> bool:
    """True if a value is better than the best one so far by more than `by`; NaN never is.

    >>> is_better(0.3, 0.4, "min"), is_better(0.4, 0.4, "min"), is_better(0.5, None, "max")
    (True, False, True)
    """
    if best is None or math.isnan(value):
        return not math.isnan(value)
    return value < best - by if mode == "min" else value > best + by


def is_last_look(state: State[Any, Any]) -> bool:
    """True at the end of a run, when no later measurement can follow."""
    return (state.end or End.PAUSED) > End.PAUSED


@dataclass
class Monitored:
    """Which write of a metric a handler has looked at, so that no value counts twice."""

    looked_at: int = 0

    def new_value(
        self, state: State[Any, Any], name: str, *, allow_stale: bool = False
    ) -> float | None:
        """The metric on rank 0, for all ranks; None if it was not written since the last look.

        At the end of the run, a value of an earlier iteration will do.
        """
        allow_stale = allow_stale or (name in state.metrics and is_last_look(state))
        if not state.metrics.is_new(name, self.looked_at, allow_stale=allow_stale):
            return None
        self.looked_at = state.metrics.written(name)
        given = state.metrics[name]
        try:
            number = as_float(given)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"the metric {name!r} is compared with earlier values, so it has to be one number, "
                f"such as scores.mean(), and it is {given!r:.80}: {error}"
            ) from error
        value = ranks.agreed(number)
        warn_if_not_finite({name: value})
        return value


def warn_if_not_finite(numbers: Mapping[str, float]) -> None:
    """Warn of the first loss among these numbers that is not finite; once in a run under way.

    A metric is a loss by its name. A handler of BACKWARD_COMPLETED judges the steps itself.
    """
    bad = [name for name, each in numbers.items() if not math.isfinite(each) and _is_loss(name)]
    state = under_way.get() if bad else None
    if state is None or not state.training or state.control.has_told_non_finite:
        return
    if not state.engine.has_handlers(Events.BACKWARD_COMPLETED):
        state.control.has_told_non_finite = True
        logger.warning(
            "the metric %r is %s in iteration %d, and no handler keeps such steps from the "
            "weights: NonFiniteGuard() ends the run at the first one, before the weights change, "
            "and NonFiniteGuard('skip') leaves it out",
            *(bad[0], numbers[bad[0]], state.iteration),
        )


def _is_loss(name: object) -> bool:
    words = set(re.split(r"[^a-z]+", str(name).lower()))
    return "loss" in words and words.isdisjoint({"best", "lowest", "min"})  # may begin at infinity

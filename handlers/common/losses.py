"""The warning of a loss that is not finite, given where metrics are read anyway."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping

from ...engine import Events
from ...engine.state import under_way

logger: logging.Logger = logging.getLogger("camshaft")


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

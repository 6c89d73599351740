"""A limit on every pass over data, to try a script out: `CAMSHAFT_MAX_BATCHES=3`."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..state.state import State

logger = logging.getLogger("camshaft")

VARIABLE = "CAMSHAFT_MAX_BATCHES"


def max_batches() -> int | None:
    """How many batches of each pass there are at the most, by the environment; None for all.

    Raises:
        ValueError: The variable is no number of batches.
    """
    given = os.environ.get(VARIABLE, "")
    if not given:
        return None
    if not given.isdecimal() or int(given) == 0:
        raise ValueError(f"{VARIABLE}={given!r}: needs a number of batches, from 1, or nothing")
    return int(given)


def shorter(length: int | None, most: int | None) -> int | None:
    """The smaller one of two lengths, of which None is endless.

    >>> shorter(None, 3), shorter(2, None), shorter(2, 3), shorter(None, None)
    (3, 2, 2, None)
    """
    return min((each for each in (length, most) if each is not None), default=None)


def limit(state: State[Any, Any]) -> int | None:
    """The limit for a run that begins, of which it tells those who look at its log.

    Raises:
        ValueError: The variable is no number of batches.
    """
    most = max_batches()
    if most is not None and state.parent is None:
        logger.warning(
            "%s=%d: each pass over data, in training and in evaluation, ends after so many "
            "batches; unset it for a run that counts",
            *(VARIABLE, most),
        )
    return most

"""What a metric is as a number: the one place that decides."""

from __future__ import annotations

import math
from typing import Any


def as_float(number: Any) -> float:
    """The number as a float; one that is larger than all floats is infinite, as the text 1e400 is.

    A metric is compared, averaged, logged and saved as this float, so an integer of hundreds of
    digits is treated like any other number that is not finite.

    >>> as_float(10**400), as_float(-(10**5000)), as_float(3)
    (inf, -inf, 3.0)

    Raises:
        TypeError: It is no number.
        ValueError: It is text that is no number.
    """
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf

"""When metrics are reported, and as which numbers: the one place that waits for devices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ...engine import Events
from .losses import warn_if_not_finite

AT_EACH_ROW = Events.ITERATION_COMPLETED(every=50) | Events.EPOCH_COMPLETED | Events.COMPLETED
"""When loggers write a row by default."""


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are one number, as floats; one copy to the host for each device.

    Numbers are those of Python and NumPy, and tensors without dimensions; other metrics are left
    out. The first loss of a run that is not finite is a warning, unless a handler guards the steps.

    >>> scalars({"loss": torch.tensor(0.5), "lr": 0.1, "confusion": torch.eye(2)})
    {'loss': 0.5, 'lr': 0.1}
    """
    numbers = {name: _float(value) for name, value in metrics.items() if isinstance(value, Real)}
    held: dict[torch.device, dict[str, Tensor]] = {}
    for name, value in metrics.items():
        if isinstance(value, Tensor) and value.ndim == 0 and not value.is_complex():
            held.setdefault(value.device, {})[name] = value.detach()
    for device, tensors in held.items():
        widest = torch.float32 if device.type == "mps" else torch.float64  # mps has no float64
        stacked = torch.stack([tensor.to(widest) for tensor in tensors.values()])
        numbers.update(zip(tensors, stacked.tolist(), strict=True))
    warn_if_not_finite(numbers)
    return {name: numbers[name] for name in metrics if name in numbers}


def _float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf if number > 0 else -math.inf

"""When metrics are reported, and as which numbers: the one place that waits for devices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ...engine import Events, State
from ...engine.checks import warn
from ...engine.state import as_float
from .comparison import warn_if_not_finite

AT_EACH_ROW = Events.ITERATION_COMPLETED(every=50) | Events.EPOCH_COMPLETED | Events.COMPLETED
"""When loggers write a row by default: not at each iteration, but where a row is worth it."""


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are one number, as floats; one copy to the host for each device.

    Numbers are those of Python and NumPy, and tensors without dimensions; other metrics are left
    out. The first loss of a run that is not finite is a warning, unless a handler guards the steps.

    >>> scalars({"loss": torch.tensor(0.5), "lr": 0.1, "confusion": torch.eye(2)})
    {'loss': 0.5, 'lr': 0.1}
    """
    numbers, by_device = dict[str, float](), dict[torch.device, dict[str, Tensor]]()
    for name, value in metrics.items():
        if isinstance(value, Tensor):
            if hasattr(value, "full_tensor"):
                as_float(value)  # an error
            if value.ndim == 0 and not value.is_complex():
                numbers[name] = 0.0  # its place among the others, until the copy is there
                by_device.setdefault(value.device, {})[name] = value.detach()
        elif type(value) is float:
            numbers[name] = value
        elif isinstance(value, Real):  # NumPy's float64 is a float too
            numbers[name] = as_float(value)
    for device, tensors in by_device.items():
        widest = torch.float32 if device.type == "mps" else torch.float64  # mps has no float64
        stacked = torch.stack([tensor.to(widest) for tensor in tensors.values()])
        numbers.update(zip(tensors, stacked.tolist(), strict=True))
    if not all(map(math.isfinite, numbers.values())):
        warn_if_not_finite(numbers)
    return numbers


def warn_of_unknown(
    names: Iterable[str], metrics: Mapping[str, Any], kind: str, warned: set[str], *, at_end: bool
) -> None:
    """Warn of names that no metric has, except those in `warned`, to which they are added.

    Before the end of the run a metric may still come, as of a validation each ten epochs; until
    then a name counts as unknown if it is much like that of another metric with the same prefix.
    """
    for name in names:
        if name in metrics or name in warned:
            continue
        beside = [each for each in metrics if _prefix(each) == _prefix(name)]
        like = get_close_matches(name, metrics if at_end else beside, n=1, cutoff=0.75)
        if like or at_end:
            warned.add(name)
            meant = f"; did you mean {like[0]!r}?" if like else ""
            known = ", ".join(map(repr, metrics)) or "none"
            warn(f"{kind}({name!r}): no metric has this name{meant} (there is: {known})")


def last_iteration(state: State[Any, Any]) -> int | None:
    """The iteration at which the run ends by its epochs or iterations; None if unknown."""
    ends = [] if state.max_iterations is None else [state.max_iterations]
    if state.max_epochs is not None and state.epoch_length is not None:
        more = state.max_epochs + 1 - max(state.epoch, 1)
        ends.append(state.control.epoch_began + more * state.epoch_length)
    return min(ends, default=None)


def _prefix(name: str) -> str:
    return name.rpartition("/")[0]

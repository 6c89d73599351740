"""The latest value of every metric of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from ..names import advice

Entry = tuple[Any, int, tuple[int, int, int]]
"""A value, the number of its write, and its clocks: see `LatestMetrics.clocks`."""


class LatestMetrics(dict[str, Any]):
    """The latest value of every metric, with the order and iteration in which it was written.

    `metrics[name]` is the latest value, however old it is. A decision needs a value of this
    iteration: use `fresh` or `is_new`. Of a tensor, a copy without its graph is kept: what changes
    in place later, such as a parameter or a running sum, does not change the metric, and no metric
    keeps activations in memory.

    >>> metrics = LatestMetrics(loss=0.5)
    >>> metrics["accuracy"]
    Traceback (most recent call last):
    ...
    KeyError: "no metric 'accuracy' has been produced so far; there is: 'loss'"
    """

    __slots__ = ("_claimed", "_written", "before", "clock", "iteration", "looked_at", "writes")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.writes: int = 0
        self.iteration: int = 0
        """The iteration that the run is in."""
        self.clock: tuple[int, int] = (0, 0)
        """The steps that the run has performed, and its current epoch."""
        self._written: dict[str, tuple[int, int, tuple[int, int]]] = {}
        """By name: the number, the iteration and the clock of the latest write."""
        self._claimed: frozenset[str] = frozenset()
        """The names that belong to the parts of a loss."""
        self.before: dict[str, Entry] = {}
        """What there was before a validation, while its event is fired."""
        self.looked_at: dict[str, int] = {}
        """By handler that shows metrics: the number of writes when it did so last."""
        self.update(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self._claimed:
            raise self._taken(name)
        if hasattr(value, "detach"):  # one that changes later looks like one that stays
            value = value.detach().clone()
        self.writes = number = self.writes + 1
        self._written[name] = number, self.iteration, self.clock
        dict.__setitem__(self, name, value)  # super() would double the time to write a step's loss

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Write several metrics, like `dict.update`."""
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def claim(self, parts: Mapping[str, Any]) -> None:
        """Write the parts of a loss, whose names nothing else may write from then on.

        Raises:
            ValueError: Something else has written one of these names in this iteration.
        """
        for name, value in parts.items():
            if name not in self._claimed and self.is_fresh(name):
                raise self._taken(name)
            self.replace(name, value.detach().clone() if hasattr(value, "detach") else value)
        self._claimed = self._claimed.union(parts)

    def replace(self, name: str, value: Any) -> None:
        """Write a value that was just computed and that nothing changes, claimed or not: no copy.

        It has no graph: the loss of a step, or the mean of a metric under its own name.
        """
        self.writes = number = self.writes + 1
        self._written[name] = number, self.iteration, self.clock
        dict.__setitem__(self, name, value)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Write a metric if there is none of this name, like `dict.setdefault`."""
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, other: Any) -> Self:  # type: ignore[override, misc]
        self.update(other)
        return self

    def written(self, name: str) -> int:
        """The number of the latest write of this metric; a different number means a newer value.

        Raises:
            KeyError: There is no such metric; the message lists those there are.
        """
        return self._written[name][0] if name in self else self[name]

    def clocks(self, name: str) -> tuple[int, int, int]:
        """The iteration, the steps and the epoch in which a metric was last written.

        >>> LatestMetrics(loss=0.5).clocks("loss")
        (0, 0, 0)
        """
        _, iteration, clock = self._written[name]
        return (iteration, *clock)

    def fresh(self, name: str) -> Any:
        """The value of a metric, if it was written in this iteration.

        >>> metrics = LatestMetrics(loss=0.5)
        >>> metrics.iteration = 3
        >>> metrics.fresh("loss")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        LookupError: the metric 'loss' was last written in iteration 0, and this is iteration 3;...

        Raises:
            KeyError: There is no such metric; the message lists those there are.
            LookupError: It was written in an earlier iteration.
        """
        value = self[name]
        if not self.is_fresh(name):
            written = self._written[name][1]
            raise LookupError(
                f"the metric {name!r} was last written in iteration {written}, and this is "
                f"iteration {self.iteration}; look at it when it is measured, by the same when=, "
                f"or accept an older value: allow_stale=True for a handler, metrics[{name!r}] in "
                "code of your own"
            )
        return value

    def is_fresh(self, name: str) -> bool:
        """True if a metric was written in this iteration."""
        return name in self and self._written[name][1] == self.iteration

    def is_new(self, name: str, looked_at: int, *, allow_stale: bool = False) -> bool:
        """True if a metric was written after the write `looked_at`, so that no value counts twice.

        Args:
            name: The metric.
            looked_at: The value of `written` at the last look; 0 before the first.
            allow_stale: True to accept a value of an earlier iteration, or none so far.

        Raises:
            KeyError: There is no such metric; the message lists those there are.
            LookupError: It was written in an earlier iteration.
        """
        if not allow_stale and name not in self:
            raise KeyError(
                f"{self.missing(name)}. If it comes later, look at it when it is measured, by the "
                "same when=, or pass allow_stale=True"
            )
        if not allow_stale:
            self.fresh(name)
        return name in self and self.written(name) != looked_at

    def since(self, write: int) -> dict[str, Any]:
        """The metrics written since `writes` had this value, for loggers."""
        return {name: value for name, value in self.items() if self._written[name][0] > write}

    def entries(self, write: int) -> dict[str, Entry]:
        """Like `since`, with the number and the clocks of each write."""
        return {
            name: (value, number, (iteration, *clock))
            for name, value in self.items()
            for number, iteration, clock in (self._written[name],)
            if number > write
        }

    def state_dict(self) -> dict[str, Any]:
        """The values, and the order and iterations of their writes."""
        return {
            "values": dict(self),
            "written": {name: number for name, (number, _, _) in self._written.items()},
            "writes": self.writes,
            "looked_at": dict(self.looked_at),
            "iterations": {name: iteration for name, (_, iteration, _) in self._written.items()},
            "clocks": {name: clock for name, (_, _, clock) in self._written.items()},
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from saved values."""
        self.clear()
        self._claimed = frozenset()
        super().update(saved["values"])
        self.writes = saved["writes"]
        self.looked_at = dict(saved.get("looked_at", {}))
        self._written = {}
        for name, number in saved["written"].items():
            steps, epoch = saved["clocks"][name]
            self._written[name] = number, saved["iterations"][name], (steps, epoch)

    def __reduce__(self) -> Any:
        """Copy and pickle the values; the copy counts them as written in this order."""
        return type(self), (dict(self),)

    def __missing__(self, name: str) -> Any:
        raise KeyError(self.missing(name))

    def _taken(self, name: str) -> ValueError:
        return ValueError(
            f"the metric {name!r} is a part of the loss in this run, and something else writes it "
            "too, so that one value would replace the other: give the part another name where the "
            f'loss function returns it, such as "loss_{name}", or rename the other metric'
        )

    def missing(self, name: str) -> str:
        """The message for a metric that does not exist."""
        known = ", ".join(map(repr, self)) or "none yet"
        meant = advice(name, self, {}).removeprefix("; ")
        said = f" ({meant})" if meant else ""
        return f"no metric {name!r} has been produced so far; there is: {known}{said}"


def as_float(number: Any) -> float:
    """The number as a float; a number too large for a float becomes infinite, as the text 1e400.

    A metric is compared, averaged, logged and saved as this float, so an integer of hundreds of
    digits is treated like any other number that is not finite.

    >>> as_float(10**400), as_float(-(10**5000)), as_float(3)
    (inf, -inf, 3.0)

    Raises:
        TypeError: It is not a number, or a DTensor, whose number would be that of this rank's part.
        ValueError: It is text that is not a number.
    """
    if hasattr(number, "full_tensor"):  # float() of one does not ask the other ranks
        raise TypeError(
            "a metric is a DTensor, of which each rank has a part, so that ranks would differ: "
            "write state.metrics[name] = value.full_tensor(), on all ranks"
        )
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf

"""The latest value of every metric of a run."""

from __future__ import annotations

from typing import Any, Self


class Readings(dict[str, Any]):
    """The latest value of every metric; knows in which order they were written.

    >>> readings = Readings(loss=0.5)
    >>> readings["accuracy"]
    Traceback (most recent call last):
    ...
    KeyError: "no metric 'accuracy' has been produced so far; there is: 'loss'"
    """

    __slots__ = ("_written", "writes")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Start with these values, like a dict."""
        super().__init__()
        self.writes = 0
        self._written: dict[str, int] = {}
        self.update(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        """Write a metric."""
        self.writes = self._written[name] = self.writes + 1
        dict.__setitem__(self, name, value)  # super() would double what a step's loss costs

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Write several metrics, like `dict.update`."""
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Write a metric if there is none of this name, like `dict.setdefault`."""
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, other: Any) -> Self:  # type: ignore[override, misc]
        """Write several metrics."""
        self.update(other)
        return self

    def written(self, name: str) -> int:
        """Which write the latest one of this metric was: another number means another value.

        Raises:
            KeyError: There is no such metric; the message lists those there are.
        """
        return self._written[name] if name in self else self[name]

    def since(self, write: int) -> dict[str, Any]:
        """What was written after `writes` had that value: how a logger finds what is new."""
        return {name: value for name, value in self.items() if self._written[name] > write}

    def state_dict(self) -> dict[str, Any]:
        """The values and the order of their writes."""
        return {"values": dict(self), "written": dict(self._written), "writes": self.writes}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from saved values."""
        self.clear()
        super().update(saved["values"])
        self._written, self.writes = dict(saved["written"]), saved["writes"]

    def __reduce__(self) -> Any:
        """Copy and pickle the values; in the copy, they were written in this order."""
        return type(self), (dict(self),)

    def __missing__(self, name: str) -> Any:
        """Say which metrics there are."""
        known = ", ".join(map(repr, self)) or "none yet"
        raise KeyError(f"no metric {name!r} has been produced so far; there is: {known}")

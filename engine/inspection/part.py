"""One kind of run, a training or an evaluation: its process function, and who is called when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..signals import Signals, label, source
from .folding import is_of_the_user
from .handler_rows import HandlerRow, handler_rows


@dataclass(frozen=True)
class Part:
    """One kind of run, with the rows of its handlers in the order of the calls."""

    title: str
    process: str
    """The name of the process function."""
    source: str
    """Where it is written."""
    is_own: bool
    """True if it is the user's, False for one of `supervised`."""
    rows: tuple[HandlerRow, ...]

    @classmethod
    def of(cls, process: Callable[..., Any], signals: Signals, training: bool) -> Part:
        """Look up who is called in runs of this process function."""
        title = "run" if training else "evaluate"
        rows = tuple(handler_rows(signals, training))
        return cls(title, label(process), source(process), is_of_the_user(process), rows)

    @property
    def folded(self) -> tuple[HandlerRow, ...]:
        """What to see first: each handler of Camshaft where it acts, by its name alone."""
        return tuple(self._folded())

    def _folded(self) -> Iterator[HandlerRow]:
        last = None
        for row in self.rows:
            if row.is_folded:
                continue
            if not row.is_own:
                row = row._replace(handler=row.owner or row.handler, source="")  # noqa: PLW2901
            if row.is_own or last is None or row[:3] != last[:3] or row.when != last.when:
                yield row
            last = row

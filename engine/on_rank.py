"""Handlers of one rank only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .engine import Engine, Handler


@dataclass(frozen=True, eq=False)
class on_rank:  # noqa: N801  # reads as the declaration it is
    """A handler that is attached on one rank only, such as whatever writes files.

    It must not take part in anything that all ranks do together.

    >>> from camshaft.handlers import JSONLines
    >>> on_rank(0, JSONLines("runs/rows.jsonl")).rank
    0
    """

    rank: int
    handler: Handler

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Attach the handler; `Engine.add` comes here on the rank it is meant for."""
        engine.add(self.handler)

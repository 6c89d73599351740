"""The parts of a run by its journal: from each start or resume to its end, whatever that was."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

ENDS = ("completed", "interrupted", "failed")


@dataclass
class Part:
    """One process's turn at a run."""

    began: dict[str, Any]
    """Its first line, with configuration, environment and handlers."""
    lines: list[dict[str, Any]] = field(default_factory=list)
    alive: bool = False

    @property
    def last(self) -> dict[str, Any]:
        """Its last sign of life."""
        return self.lines[-1]

    @property
    def end(self) -> str:
        """How it ended: completed, interrupted or failed, as the journal says; killed or running.

        A part without a last line was killed, or lost its machine, unless it is still written to.
        """
        if self._end:
            return str(self._end["event"])
        return "running" if self.alive else "killed"

    @property
    def _end(self) -> dict[str, Any] | None:
        """The line that says so; a run that is completed may still save."""
        return next((line for line in reversed(self.lines) if line["event"] in ENDS), None)

    def facts(self) -> dict[str, Any]:
        """What a page says of it."""
        return {
            "event": self.began["event"],
            "began": _number(self.began, "time"),
            "from": _number(self.began, "iteration"),
            "end": self.end,
            "ended": _number(self.last, "time"),
            "to": _number(self.last, "iteration"),
            "reason": str((self._end or {}).get("reason") or ""),
            "saves": [
                {"time": _number(line, "time"), "iteration": _number(line, "iteration")}
                | {"reason": str(line.get("reason", ""))}
                for line in self.lines
                if line["event"] == "saving"
            ],
        }


def parts(records: list[dict[str, Any]], alive: bool) -> list[Part]:
    """The parts in the order in which they began: that of the lines, as a clock may be set back.

    Args:
        records: The lines of a journal.
        alive: True if the file is still written to: then the newest part without an end runs.
    """
    found: dict[str, Part] = {}
    for record in records:
        key = str(record.get("part"))
        if key not in found:
            found[key] = Part(record)
        found[key].lines.append(record)
    ordered = list(found.values())
    if alive and (left := [part for part in ordered if part.end == "killed"]):
        left[-1].alive = True
    return ordered


def pace(found: list[Part]) -> tuple[list[int], list[float]]:
    """Iterations, and the iterations per second up to each, over at least a second.

    Iterations that a later part of the run repeated are left out.
    """
    iterations: list[int] = []
    rates: list[float] = []
    for part in found:
        before = part.began
        while iterations and iterations[-1] > _number(before, "iteration"):
            iterations.pop()
            rates.pop()
        for line in part.lines:
            seconds = _number(line, "time") - _number(before, "time")
            done = _number(line, "iteration") - _number(before, "iteration")
            if seconds >= 1:
                if done > 0:
                    iterations.append(int(_number(line, "iteration")))
                    rates.append(done / seconds)
                before = line
    return iterations, rates


def _number(record: dict[str, Any], name: str) -> float:
    value = record.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0
    return value if abs(value) < math.inf else 0

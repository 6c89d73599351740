"""The parts of a run by its journal: each from a start or a resume to whatever ended it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ENDS = ("completed", "interrupted", "failed")
CLOCKS = ("time", "iteration", "step", "epoch")


@dataclass
class Part:
    """What one process did of a run."""

    lines: list[dict[str, Any]]
    """Its lines in the journal; the first has the configuration, environment and handlers."""
    is_alive: bool = False

    @property
    def first(self) -> dict[str, Any]:
        """The line that began it."""
        return self.lines[0]

    @property
    def last(self) -> dict[str, Any]:
        """Its last sign of life."""
        return self.lines[-1]

    @property
    def end(self) -> str:
        """Completed, interrupted or failed, as the journal says; otherwise killed or running.

        A process whose lines have no end was killed, or lost its machine, unless it still runs.
        """
        return str(self._ending.get("event") or ("running" if self.is_alive else "killed"))

    @property
    def reason(self) -> str:
        """Why it ended."""
        return str(self._ending.get("reason") or "")

    @property
    def saves(self) -> list[dict[str, Any]]:
        """The lines about checkpoints."""
        return [line for line in self.lines if line["event"] == "saving"]

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return max(0.0, float(self.last["time"] - self.first["time"]))

    @property
    def _ending(self) -> dict[str, Any]:
        """The line about its end, which a last checkpoint may follow; empty if there is none."""
        return next((line for line in reversed(self.lines) if line["event"] in ENDS), {})


def parts_of(records: list[dict[str, Any]], *, is_alive: bool) -> list[Part]:
    """The parts in the order of their first lines, since a clock may be set back.

    Args:
        records: The lines of a journal.
        is_alive: True if a process still writes to the journal: the newest part without an end.
    """
    grouped: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        clocks = {clock: number_in(record, clock) for clock in CLOCKS}
        grouped.setdefault(str(record.get("part")), []).append(record | clocks)
    found = [Part(lines) for lines in grouped.values()]
    if is_alive and (open_ended := [part for part in found if part.end == "killed"]):
        open_ended[-1].is_alive = True
    return found


def pace(found: list[Part]) -> tuple[list[int], list[float]]:
    """Iterations, and the iterations per second up to each, over at least a second.

    Iterations that a later part of the run repeated are left out.
    """
    iterations: list[int] = []
    rates: list[float] = []
    for part in found:
        before = part.first
        while iterations and iterations[-1] > before["iteration"]:
            iterations.pop()
            rates.pop()
        for line in part.lines:
            seconds = line["time"] - before["time"]
            done = line["iteration"] - before["iteration"]
            if seconds >= 1:
                if done > 0:
                    iterations.append(int(line["iteration"]))
                    rates.append(done / seconds)
                before = line
    return iterations, rates


def number_in(record: Mapping[str, Any], name: str) -> float:
    """A number of a record; 0 for anything else."""
    value = record.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0
    return value if abs(value) < math.inf else 0

"""The parts of a run by its journal: each from a start or a resume to whatever ended it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...files import budget

ENDS = ("completed", "interrupted", "failed")
PATIENCE, MISSED = 60, 3
"""A process is silent after a minute, or three missed signs of life, whatever is longer."""
CLOCKS = ("time", "iteration", "step", "epoch")


@dataclass
class Part:
    """What one process did of a run."""

    lines: list[dict[str, Any]]
    """Its lines in the journal; the first has the configuration, environment and handlers."""
    is_open: bool = False
    """True if a process may still add lines."""
    silence: float = 0.0
    """The seconds since its last sign of life, of an open part."""

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

        A process whose lines have no end was killed, or lost its machine, unless it still runs. A
        process that runs and misses several signs of life is silent.
        """
        if ending := self._ending.get("event"):
            return str(ending)
        if not self.is_open:
            return "killed"
        patience = max(PATIENCE, MISSED * number_in(self.first, "interval"))
        return "running" if self.silence < patience else "silent"

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
    def host(self) -> str:
        """The machine that it ran on; empty if nothing tells."""
        environment = self.first.get("environment")
        return str(environment.get("host", "")) if isinstance(environment, dict) else ""

    @property
    def _ending(self) -> dict[str, Any]:
        """The line about its end, which a last checkpoint may follow; empty if there is none."""
        return next((line for line in reversed(self.lines) if line["event"] in ENDS), {})


def parts_of(
    records: list[dict[str, Any]], *, is_alive: bool, now: float = 0.0, machine: str = ""
) -> list[Part]:
    """The parts in the order of their first lines, since a clock may be set back.

    Args:
        records: The lines of a journal.
        is_alive: True if a process of this machine still writes to the journal: the newest part
            without an end.
        now: The time in seconds since 1970.
        machine: The name of this machine. Nothing tells whether a process of another machine is
            alive, so its newest part without an end stays open.
    """
    grouped: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        clocks = {clock: number_in(record, clock) for clock in CLOCKS}
        grouped.setdefault(str(record.get("part")), []).append(record | clocks)
    found = [Part(lines) for lines in grouped.values()]
    if endless := [part for part in found if part.end == "killed"]:
        newest = endless[-1]
        is_elsewhere = newest is found[-1] and newest.host not in ("", machine)
        newest.is_open = is_alive or is_elsewhere
        newest.silence = max(0.0, now - newest.last["time"])
    return found


def newest_run(found: list[Part]) -> list[Part]:
    """The parts of the run that is in the directory now: since the last part that began anew."""
    starts = [place for place, part in enumerate(found) if part.first["event"] == "started"]
    return found[starts[-1] :] if starts else found


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
    return value if -budget.BEYOND < value < budget.BEYOND else 0

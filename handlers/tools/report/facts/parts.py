"""The parts of a run by its journal, and what they tell of its pace and its clocks.

A part is what one process did: from a start or a resume to whatever ended it.
"""

from __future__ import annotations

import platform
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ....files import budget
from ....journal import JOURNAL, is_written
from .journal_lines import read_journal

ENDS = ("completed", "interrupted", "failed")
PATIENCE, MISSED = 60, 3
"""A process is silent after a minute, or three missed signs of life, whatever is longer."""
CLOCKS = ("time", "iteration", "step", "epoch")
MOST_CLOCKS = 500
"""Iterations of a run at which a page knows its clocks; it interpolates between them."""


@dataclass
class RunPart:
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
        """The machine that the part ran on; empty if unknown."""
        environment = self.first.get("environment")
        return str(environment.get("host", "")) if isinstance(environment, dict) else ""

    @property
    def _ending(self) -> dict[str, Any]:
        """The line about its end, which a last checkpoint may follow; empty if there is none."""
        return next((line for line in reversed(self.lines) if line["event"] in ENDS), {})


def parts_in(directory: Path) -> tuple[list[RunPart], str]:
    """The parts of the runs in a directory as they are now, and why they could not be read."""
    path = directory / JOURNAL
    records, is_alive = read_journal(path), is_written(path)
    now, machine = time.time(), platform.node()
    return parts_of(records, is_alive=is_alive, now=now, machine=machine), records.problem


def parts_of(
    records: list[dict[str, Any]], *, is_alive: bool, now: float = 0.0, machine: str = ""
) -> list[RunPart]:
    """The parts in the order of their first lines, since a clock may be set back."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        clocks = {clock: number_in(record, clock) for clock in CLOCKS}
        grouped.setdefault(str(record.get("part")), []).append(record | clocks)
    found = [RunPart(lines) for lines in grouped.values()]
    if endless := [part for part in found if part.end == "killed"]:
        newest = endless[-1]
        # Nothing tells whether a process of another machine is alive, so its part stays open.
        is_elsewhere = newest is found[-1] and newest.host not in ("", machine)
        newest.is_open = is_alive or is_elsewhere
        newest.silence = max(0.0, now - newest.last["time"])
    return found


def newest_run(parts: list[RunPart]) -> list[RunPart]:
    """The parts of the run that is in the directory now: since the last part that began anew."""
    starts = [place for place, part in enumerate(parts) if part.first["event"] == "started"]
    return parts[starts[-1] :] if starts else parts


def pace(parts: list[RunPart]) -> tuple[list[int], list[float]]:
    """Iterations, and the iterations per second up to each, over at least a second.

    Iterations that a later part of the run repeated are left out.
    """
    iterations: list[int] = []
    rates: list[float] = []
    for part in parts:
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


def clocks_of(
    rows: Mapping[int, tuple[int, int]], parts: Sequence[RunPart], epoch_length: float
) -> dict[str, list[float]]:
    """The clocks of a run at its iterations, so that a page can draw a curve over any of them.

    Epochs are fractions: the iterations over `epoch_length`, or, if it is 0, each epoch ends at its
    last iteration that is known. Time is left out if the journal does not tell it.
    """
    known = {0: (0, 0)} | {
        int(line["iteration"]): (int(line["step"]), int(line["epoch"]))
        for part in parts
        for line in part.lines
    }
    known |= dict(rows)
    every = sorted(known)
    iterations = [*every[: -1 : -(-len(every) // MOST_CLOCKS)], every[-1]]
    last_of_epoch = {known[each][1]: each for each in every}
    ends = sorted((float(at), float(epoch)) for epoch, at in last_of_epoch.items())
    clocks = {
        "iteration": list(map(float, iterations)),
        "step": [float(known[each][0]) for each in iterations],
        "epoch": [
            round(each / epoch_length if epoch_length else _interpolated(ends, each), 4)
            for each in iterations
        ],
    }
    if work := work_time(parts):
        clocks["time"] = [round(_interpolated(work, each), 2) for each in iterations]
    return clocks


def work_time(parts: Sequence[RunPart]) -> list[tuple[float, float]]:
    """Pairs of an iteration and the seconds that a process was at work until it.

    Pauses do not count. Iterations that a later part repeated count twice, as time that was spent.
    """
    pairs: list[tuple[float, float]] = []
    before = 0.0
    for part in parts:
        while pairs and pairs[-1][0] > part.first["iteration"]:
            pairs.pop()
        pairs += [
            (line["iteration"], before + max(0.0, line["time"] - part.first["time"]))
            for line in part.lines
        ]
        before += part.seconds
    return pairs if any(one[0] < other[0] for one, other in pairwise(pairs)) else []


def _interpolated(pairs: Sequence[tuple[float, float]], iteration: float) -> float:
    """The value at an iteration, on the line between the two pairs that are nearest."""
    place = bisect_left(pairs, iteration, key=lambda pair: pair[0])
    if place == len(pairs):
        return pairs[-1][1]
    at, value = pairs[place]
    if at == iteration or place == 0:
        return value
    before, first = pairs[place - 1]
    return first + (value - first) * (iteration - before) / (at - before)


def number_in(record: Mapping[str, Any], name: str) -> float:
    """A number of a record; 0 for anything else."""
    value = record.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0
    return value if -budget.BEYOND < value < budget.BEYOND else 0

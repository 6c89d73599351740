"""All that a page says of one run, from the files in its directory."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ....files import budget
from ....journal import JOURNAL, is_written
from ...checkpoints import Claims, Finding, Findings, NoCheckpointError, look
from .curves import Series, heatmap_of
from .exhibits import Exhibit
from .metric_files import MetricFiles
from .notes import Notes, notes_in
from .parts import RunPart, clocks_of, newest_run, number_in, pace, parts_in
from .pictures import Images, Picture, images_in

PACE = "iterations per second"
DEEPEST = 20
"""Levels of a configuration; the journal writes no more."""


class NothingToReportError(FileNotFoundError):
    """A directory is missing, or holds no files of a run."""


@dataclass(frozen=True)
class RunFacts:
    """The facts about one run that a page shows."""

    name: str
    curves: dict[str, dict[str, Any]]
    """By the names of the metrics."""
    parts: list[RunPart]
    limits: dict[str, Any]
    """How far the run is to go, by the newest part in the journal, as all that follows."""
    checkpoints: list[Finding]
    config: dict[str, str]
    environment: dict[str, str]
    handlers: list[list[str]]
    """Moment, stage, name, trigger and source of each call."""
    clocks: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Iterations, and the other clocks at them."""
    histograms: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """By the names of the metrics."""
    images: dict[str, list[Picture]] = field(default_factory=dict[str, list[Picture]])
    """By the names of the metrics."""
    exhibits: dict[str, list[Exhibit]] = field(default_factory=dict[str, list[Exhibit]])
    """Texts, curves and matrices by the names of the metrics."""
    written: Notes = field(default_factory=Notes)
    """What people have written about the run."""
    notes: list[str] = field(default_factory=list[str])
    """Messages on data of the files that is not shown, with reasons."""
    claims: Claims = field(default_factory=lambda: Claims.of([]))
    """The claims that keep the checkpoints."""

    @property
    def last_part(self) -> RunPart | None:
        """The newest part in the journal; None without a journal."""
        return self.parts[-1] if self.parts else None

    @property
    def seconds(self) -> float:
        """How long a process was at work, all parts together."""
        return sum(part.seconds for part in self.parts)

    @property
    def max_epochs(self) -> float:
        """The run's limit of epochs; 0 if unknown."""
        return number_in(self.limits, "max_epochs")

    @property
    def max_iterations(self) -> float:
        """The run's limit of iterations; 0 if unknown."""
        length = number_in(self.limits, "epoch_length")
        return number_in(self.limits, "max_iterations") or self.max_epochs * length

    @property
    def seconds_left(self) -> float:
        """How long the run may still take, at the pace of its newest part; 0 if unknown."""
        if not self.parts:
            return 0
        part = self.parts[-1]
        done = part.last["iteration"] - part.first["iteration"]
        left = self.max_iterations - part.last["iteration"]
        return left * part.seconds / done if done > 0 and left > 0 else 0

    @property
    def is_begun(self) -> bool:
        """True if anything was found."""
        rows = (self.curves, self.histograms, self.exhibits)
        return any(map(bool, (*rows, self.parts, self.checkpoints, self.images)))


class RunDirectory:
    """A run's directory: each look reads what is new in it."""

    def __init__(self, directory: Path, name: str, rows: MetricFiles | None = None) -> None:
        """Read nothing yet; `rows` reads the rows, by default all of them."""
        self.directory = directory
        self.name = name
        self._rows = rows or MetricFiles(directory)
        self._seen: tuple[Any, ...] = ()
        self._images, self._notes = Images(), Notes()
        self._is_open = False

    def look(self) -> bool:
        """Read what is new; False if everything is as before."""
        grown = self._rows.look()
        journal = self.directory / JOURNAL
        names = sorted(path.name for path in self.directory.glob("iteration-*"))
        self._images, self._notes = images_in(self.directory), notes_in(self.directory)
        seen = (names, self._images, self._notes, *_signs(journal, self._is_open))
        changed = grown or seen != self._seen
        self._seen = seen
        return changed

    def facts(self) -> RunFacts:
        """The facts in the run's directory."""
        every, problem = parts_in(self.directory)
        parts = newest_run(every)
        notes = [*self._rows.problems, problem, self._images.problem]
        if len(parts) > budget.MOST_SHOWN:
            notes.append(f"shown: the last {budget.MOST_SHOWN} of {len(parts)} parts of the run")
            parts = parts[-budget.MOST_SHOWN :]
        self._is_open = any(part.is_open for part in parts)
        newest = next((part.first for part in reversed(parts) if "config" in part.first), {})
        limits, calls = newest.get("limits"), newest.get("handlers")
        limits = limits if isinstance(limits, dict) else {}
        calls = calls if isinstance(calls, list) else []
        config = by_path(newest.get("config"))
        if max(len(config), len(calls)) >= budget.MOST_SHOWN:
            notes.append(f"shown: the first {budget.MOST_SHOWN} settings and calls of handlers")
        saved = self._saved()
        notes += [f"checkpoints, {note}" for note in saved.notes]
        return RunFacts(
            name=self.name,
            curves=_pace_curve(parts)
            | {name: series.curve() for name, series in self._rows.series.items()},
            parts=parts,
            limits=limits,
            checkpoints=saved,
            config=config,
            environment=by_path(newest.get("environment")),
            handlers=[
                [*map(str, row)]
                for row in calls[: budget.MOST_SHOWN]
                if isinstance(row, list) and len(row) == 5
            ],
            clocks=clocks_of(self._rows.clocks, parts, number_in(limits, "epoch_length")),
            histograms={
                name: heatmap_of(each, each.seen) for name, each in self._rows.histograms.items()
            },
            images=self._images,
            exhibits=dict(self._rows.exhibits),
            written=self._notes,
            notes=[note for note in notes if note],
            claims=Claims.of(saved),
        )

    def _saved(self) -> Findings:
        """The checkpoints; empty if there are none."""
        try:
            return look(self.directory, thoroughly=False)
        except NoCheckpointError:
            return Findings([])


def _signs(journal: Path, is_open: bool) -> tuple[int, bool, int]:
    """The size of a journal, whether it is written, and the minutes without a line, if it is open.

    A page counts these minutes, so it changes with each.
    """
    try:
        status = journal.stat()
    except OSError:
        return -1, False, 0
    return status.st_size, is_written(journal), is_open and int(time.time() - status.st_mtime) // 60


def _pace_curve(parts: list[RunPart]) -> dict[str, Any]:
    """The pace as one more curve, if there are enough lines of the journal to draw one."""
    iterations, rates = pace(parts)
    if len(rates) < 2:
        return {}
    series = Series()
    for iteration, rate in zip(iterations, rates, strict=True):
        series.add(iteration, 0, rate)
    return {PACE: series.curve() | {"shape": "vh"}}


def by_path(value: Any, name: str = "", depth: int = 0) -> dict[str, str]:
    """Nested values as text, by the path to each, such as `model.width`; empty ones stay.

    Of very many values these are the first.

    >>> by_path({"model": {"width": 8, "heads": []}, "lr": 0.1})
    {'model.width': '8', 'model.heads': '[]', 'lr': '0.1'}
    """
    if isinstance(value, dict) and (value or name) and depth < DEEPEST:
        inner: dict[str, str] = {}
        for key, each in islice(value.items(), budget.MOST_SHOWN):
            place = f"{name}.{key}" if name else str(key)
            inner |= by_path(each, place[: budget.LONGEST_NAME], depth + 1)
            if len(inner) >= budget.MOST_SHOWN:
                break
        return inner or {name: "{}"}
    return {name: json.dumps(value) if isinstance(value, list) else str(value)} if name else {}


def runs_in(directories: list[Path]) -> list[RunDirectory]:
    """A run for each directory, named by as much of its path as tells the directories apart."""
    return list(map(RunDirectory, directories, distinct(directories)))


def distinct(directories: list[Path]) -> list[str]:
    """The shortest ends of paths that tell directories apart; a page shows no whole path.

    >>> distinct([Path("a/runs/1"), Path("b/runs/1"), Path("b/runs/2")])
    ['a/runs/1', 'b/runs/1', 'b/runs/2']
    """
    every = [path.resolve().parts for path in dict.fromkeys(directories)]
    length = next(
        (n for n in range(1, 50) if len({parts[-n:] for parts in every}) == len(every)), 1
    )
    return ["/".join(path.resolve().parts[-length:]) for path in directories]

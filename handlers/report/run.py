"""All that a page says of one run, from what lies in its directory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ..checkpoint import Claims, Finding, NoCheckpointError, look
from ..journal.journal import NAME as JOURNAL
from ..journal.lines import is_written, read
from .charts import charts
from .curve import curve
from .parts import Part, pace, parts
from .rows import Rows, Series


class NothingToReportError(FileNotFoundError):
    """There is no run, or none that left anything to read."""


class Run:
    """A run's directory: each look reads what is new in it."""

    def __init__(self, directory: Path) -> None:
        """Start with nothing read."""
        self.directory = directory
        self._rows = Rows(directory)
        self._seen: tuple[Any, ...] = ()
        self._curves: dict[str, tuple[Series, dict[str, Any]]] = {}

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to report."""
        journal = self.directory / JOURNAL
        if not self.directory.is_dir():
            return True
        return not (self._rows.series or read(journal) or self._checkpoints())

    def look(self) -> bool:
        """Read what is new; False if everything is as before."""
        grown = self._rows.look()
        journal = self.directory / JOURNAL
        names = sorted(path.name for path in self.directory.glob("iteration-*"))
        seen = (names, journal.stat().st_size if journal.exists() else -1, is_written(journal))
        changed = grown or seen != self._seen
        self._seen = seen
        return changed

    def facts(self, name: str) -> dict[str, Any]:
        """What was read, as values for JSON."""
        journal = self.directory / JOURNAL
        found = parts(read(journal), is_written(journal))
        told = [part.began for part in found if "config" in part.began]
        newest = told[-1] if told else {}
        return {
            "name": name,
            "curves": self._drawn(),
            "pace": pace(found),
            "progress": _progress(found, newest),
            "parts": [part.facts() for part in found],
            "checkpoints": self._checkpoints(),
            "config": flat(newest.get("config")),
            "environment": flat(newest.get("environment")),
            "handlers": _calls(newest.get("handlers")),
        }

    def _drawn(self) -> dict[str, Any]:
        """The curves; one to which nothing was added since is not made anew."""
        before, self._curves = self._curves, {}
        for name, series in self._rows.series.items():
            known, drawn = before.get(name, (None, {}))
            same = known is series and drawn["count"] == len(series.values)
            self._curves[name] = (series, drawn if same else curve(series))
        return {name: drawn for name, (_, drawn) in self._curves.items()}

    def _checkpoints(self) -> list[dict[str, Any]]:
        try:
            found = look(self.directory, thoroughly=False)
        except NoCheckpointError:
            return []
        claims = Claims.of(found)
        return [_checkpoint(each, claims) for each in found]


def _checkpoint(each: Finding, claims: Claims) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": each.path.name, "problem": each.problem}
    if each.saved is None:
        return facts
    manifest = each.saved.manifest
    return facts | {
        "iteration": manifest.iteration,
        "step": manifest.step,
        "epochs": manifest.epoch,
        "size": manifest.size,
        "written": each.written,
        "kept_by": claims.text(each) if each.problem is None else "",
        "reason": manifest.reason.replace("Events.", ""),
    }


def _progress(found: list[Part], newest: dict[str, Any]) -> dict[str, Any] | None:
    """How far the run is, by the newest line of its journal."""
    if not found:
        return None
    limits = newest.get("limits")
    limits = limits if isinstance(limits, dict) else {}
    clocks = {clock: found[-1].last.get(clock) for clock in ("iteration", "step", "epoch")}
    return {**_finite({**clocks, **limits}), "end": found[-1].end}


def _calls(told: Any) -> list[list[str]]:
    """The rows of handlers: moment, stage, name, trigger and source; what is none is left out."""
    rows = told if isinstance(told, list) else []
    return [[*map(str, row)] for row in rows if isinstance(row, list) and len(row) == 5]


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested values by the path to each, such as `model.width`; empty ones stay.

    >>> flat({"model": {"width": 8, "heads": []}, "lr": 0.1})
    {'model.width': 8, 'model.heads': [], 'lr': 0.1}
    """
    if isinstance(value, dict) and (value or name):
        inner: dict[str, Any] = {}
        for key, each in value.items():
            inner |= flat(each, f"{name}.{key}" if name else str(key))
        return inner or {name: {}}
    return {name: _finite(value)} if name else {}


def _finite(value: Any) -> Any:
    """A journal that was written by hand may hold what JSON has no word for."""
    if isinstance(value, list):
        return [_finite(each) for each in value]
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class Runs:
    """The runs of a page."""

    def __init__(self, directories: list[Path]) -> None:
        """Start with nothing read."""
        self.runs = [Run(directory) for directory in directories]
        self.names = distinct([run.directory for run in self.runs])

    def look(self) -> bool:
        """Read what is new; False if everything is as before."""
        looks = [run.look() for run in self.runs]
        return any(looks)

    def facts(self) -> dict[str, Any]:
        """What was read, as values for JSON, with the charts to draw of it."""
        facts = [run.facts(name) for run, name in zip(self.runs, self.names, strict=True)]
        return {"runs": facts, "charts": charts(name for each in facts for name in each["curves"])}


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

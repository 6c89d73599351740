"""`camshaft runs`: a table of the runs in directories."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from ...common import aligned, show, show_json
from ...journal import JOURNAL
from ..report import NothingToReportError, RunFacts, glance, status

DEEPEST = 4
"""Levels of directories below the one that is named."""
HEAD = ("run", "status", "iteration", "step", "best", "written")


def list_runs(paths: list[Path], as_json: bool) -> int:
    """Print a line for each run in these directories."""
    if missing := [str(root) for root in paths if not root.is_dir()]:
        raise NothingToReportError(f"{', '.join(missing)} is no directory")
    for root in paths:
        next(root.iterdir(), None)  # one that may not be read is an error, and not empty
    found = [_facts_of(root, place) for root in paths for place in run_directories(root)]
    rows = [row for row in found if row]
    if not rows:
        names = ", ".join(map(str, paths))
        raise NothingToReportError(f"{names}: no run; one has a journal, rows or checkpoints")
    if as_json:
        show_json([row | {"written": _time(row, "seconds") or None} for row in rows])
        return 0
    cells = [
        (row["run"], row["status"], row["iteration"], row["step"], _best(row), _time(row) or "-")
        for row in rows
    ]
    show(aligned([HEAD, *cells]))
    return 0


def run_directories(root: Path) -> Iterator[Path]:
    """The directories at and below a path that look like runs, not those inside of runs."""
    for place, folders, files in os.walk(root):
        path = Path(place)
        is_run = JOURNAL in files or any(each.startswith("iteration-") for each in folders)
        if is_run or any(each.endswith(".jsonl") for each in files):
            yield path
        if is_run:  # rows alone may be a data set beside the runs
            folders.clear()
        is_deep = len(path.relative_to(root).parts) >= DEEPEST
        folders[:] = [] if is_deep else sorted(each for each in folders if each[0] != ".")


def _facts_of(root: Path, place: Path) -> dict[str, Any]:
    """A run's row; empty if the directory holds nothing of a run."""
    name = str(place if place == root else place.relative_to(root))
    run, result = glance(place, name)
    if not run.is_begun:
        return {}
    newest = next((each.saved.manifest for each in run.checkpoints[::-1] if each.saved), None)
    clocks = {name: int(values[-1]) for name, values in run.clocks.items() if values}
    iteration = max(clocks.get("iteration", 0), newest.iteration if newest else 0)
    step = max(clocks.get("step", 0), newest.step if newest else 0)
    best = dict(zip(("metric", "which", "value"), result, strict=True)) if result else None
    return {
        "run": name,
        "path": str(place),
        "status": status([run]),
        "iteration": iteration,
        "step": step,
        "best": best,
        "written": _written(place, run),
    }


def _written(place: Path, run: RunFacts) -> float:
    """When the run wrote last, in seconds: as its journal and checkpoints say, or its files."""
    said = [each.written for each in run.checkpoints if each.written]
    said += [run.last_part.last["time"]] if run.last_part else []
    return max(said, default=0) or max(each.lstat().st_mtime for each in place.iterdir())


def _best(row: dict[str, Any]) -> str:
    return "{metric}={value:.6g}, {which}".format_map(row["best"]) if row["best"] else "-"


def _time(row: dict[str, Any], digits: str = "") -> str:
    try:
        time = datetime.fromtimestamp(row["written"])
    except (OSError, OverflowError, ValueError):  # a time that no calendar has
        return ""
    return time.astimezone().isoformat("T", digits) if digits else time.isoformat(" ", "minutes")

"""`camshaft report`: one HTML page about a run, or about several side by side."""

from __future__ import annotations

from pathlib import Path

from ..common.table import readable_size
from .page import page
from .run import NothingToReportError, Runs


def report(paths: list[Path], output: Path) -> int:
    """Write the page.

    Raises:
        NothingToReportError: One of the directories is none, or holds nothing of a run.
        ImportError: plotly is not installed.
    """
    runs = Runs(paths)
    runs.look()
    for run in runs.runs:
        if run.is_empty:
            what = (
                "holds no rows, journal or checkpoints"
                if run.directory.is_dir()
                else "is no directory"
            )
            raise NothingToReportError(f"{run.directory} {what}")
    text = page(runs.facts())
    output.write_text(text, encoding="utf-8")
    print(f"{output}  {readable_size(output.stat().st_size)}")
    return 0

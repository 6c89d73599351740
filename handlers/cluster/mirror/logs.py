"""Logs in the directory of a run: which files they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from ..results import COMPLETED, FOLDER
from .listing import NAME

LOGS = ("*.jsonl", "*.csv", "events.out.tfevents.*", "*/events.out.tfevents.*")
"""The logs that a run goes on with: of JSONLines, Journal, CSV and TensorBoard."""
RESULTS = (f"{FOLDER}/*/*.json", f"{FOLDER}/*/{COMPLETED}")
"""The results of evaluations elsewhere, which decide in the run: they are copied with any logs."""
PLAIN = re.compile(r"[\w%+=@-][\w.%+=@ -]*")
"""The names of folders and files that may come from elsewhere: not hidden, and not a way out."""


def is_log(name: str, patterns: Iterable[str]) -> bool:
    """True if the patterns mean this name, and it lies where a run writes logs.

    >>> is_log("val/rows.jsonl", ["*.jsonl"]), is_log("../rows.jsonl", ["*.jsonl"])
    (True, False)
    """
    names = name.split("/")
    plain = all(map(PLAIN.fullmatch, names))
    of_checkpoints = any(NAME.fullmatch(each) or each.startswith("earlier.") for each in names)
    meant = any(fnmatchcase(name, each) for each in (*RESULTS, *patterns))
    return plain and not of_checkpoints and meant


def logs_in(directory: Path, patterns: Iterable[str]) -> Iterator[str]:
    """The names of the logs in a directory and below; links to directories are not followed."""
    patterns = list(patterns)
    for folder, inner, files in os.walk(directory):
        inner[:] = [name for name in inner if not NAME.fullmatch(name)]
        for file in files:
            name = (Path(folder) / file).relative_to(directory).as_posix()
            if is_log(name, patterns):
                yield name

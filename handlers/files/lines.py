"""The lines of a log that grows, within budgets; a journal and files of rows are such logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from .budget import LARGEST_LOG, LONGEST_LINE, MOST_IN_LINE


def whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines from here to the end; the last one is left out while it is still being written.

    Raises:
        ValueError: What comes next is beyond a limit; the lines before it were given.
    """
    place = file.tell()
    while line := file.readline(LONGEST_LINE):
        if not line.endswith(b"\n"):
            if len(line) == LONGEST_LINE:
                raise ValueError(f"has a line of more than {LONGEST_LINE:,} bytes")
            return
        place += len(line)
        if place > LARGEST_LOG:
            raise ValueError(f"has more than {LARGEST_LOG:,} bytes")
        count = sum(map(line.count, (b",", b"[", b"{")))
        if count > MOST_IN_LINE:
            raise ValueError(f"has a line of about {count:,} values")
        yield line


def record_of(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None if the line is torn, or something else."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None

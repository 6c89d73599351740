"""The lines of a log that grows, within budgets; a journal and files of rows are such logs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from .budget import LARGEST_LOG, LONGEST_LINE, MOST_IN_LINE

BLOCK = 2**16
"""Bytes of one read from the end."""


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
        yield _affordable(line)


def lines_from_end(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines from the last to the first, each with its place; no more is read than is asked for.

    The last line may lack its end.

    Raises:
        ValueError: What comes next is beyond a limit; the lines after it were given.
    """
    place, begun = file.seek(0, os.SEEK_END), b""
    while place:
        size = min(place, BLOCK)
        place -= size
        file.seek(place)
        *lines, last = (file.read(size) + begun).split(b"\n")
        begun, *whole = [*(line + b"\n" for line in lines), *([last] if last else [])]
        if len(begun) > LONGEST_LINE:
            raise ValueError(f"has a line of more than {LONGEST_LINE:,} bytes")
        here = place + len(begun) + sum(map(len, whole))
        for line in reversed(whole):
            here -= len(line)
            yield here, _affordable(line)
    if begun:
        yield 0, _affordable(begun)


def _affordable(line: bytes) -> bytes:
    if (count := values_in(line)) > MOST_IN_LINE:
        raise ValueError(f"has a line of about {count:,} values")
    return line


def values_in(line: bytes) -> int:
    """About how many values a line of JSON has, and never fewer."""
    return sum(map(line.count, (b",", b"[", b"{")))


def record_of(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None if the line is torn, or something else."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None

"""One file in several directories: a second name instead of the same bytes once more."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from .durable import synchronise
from .opening import linked, regular

logger = logging.getLogger("camshaft")

PIECE = 2**18
"""Bytes that are compared at once: the processor still has them at hand."""


def shared(path: Path, name: Path, pieces: Iterable[memoryview]) -> bool:
    """Give a file a second name if it holds just these bytes, and wait until it is on the disk.

    The two names are one file, which must never change: removing a name leaves the other one.

    Returns:
        False if the file is gone or holds other bytes, or the file system has no second names.
    """
    try:
        with regular(path) as file:
            if not _holds(file, pieces):
                return False
        linked(path, name)
        synchronise(name)  # the file may have been copied here, and nobody waited for the disk
    except OSError as error:
        logger.debug("%s is written, since it cannot share the file of %s: %s", name, path, error)
        with suppress(FileNotFoundError):
            name.unlink()
        return False
    return True


def _holds(file: BinaryIO, pieces: Iterable[memoryview]) -> bool:
    """Whether a file holds just these bytes; reading ends at the first that differ."""
    found = bytearray()
    for piece in pieces:
        for begin in range(0, len(piece), PIECE):
            expected = piece[begin : begin + PIECE]
            if len(found) != len(expected):
                found = bytearray(len(expected))
            # A bytearray compares as fast as memory is read, a memoryview number by number.
            if file.readinto(found) != len(found) or found != expected:  # type: ignore[attr-defined]
                return False
    return not file.read(1)

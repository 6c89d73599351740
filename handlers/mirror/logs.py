"""The logs of a run directory, as the store holds them: whole files under their own names."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO

from ..checkpoint import CHUNK, NAME
from ..files import regular
from .store import DRAFT, Store

PLAIN = re.compile(r"[\w%+=@-][\w.%+=@ -]*")
"""The names of folders and files that may be fetched: not hidden, and not a way out."""


def is_log(name: str, patterns: Iterable[str]) -> bool:
    """True if the patterns mean this name, and it lies where a run writes logs.

    >>> is_log("val/rows.jsonl", ["*.jsonl"]), is_log("../rows.jsonl", ["*.jsonl"])
    (True, False)
    """
    parts = name.split("/")
    plain = all(PLAIN.fullmatch(part) for part in parts)
    of_checkpoints = any(NAME.fullmatch(part) or part.startswith("earlier.") for part in parts)
    return plain and not of_checkpoints and any(fnmatchcase(name, each) for each in patterns)


def logs_in(directory: Path, patterns: Iterable[str]) -> Iterator[str]:
    """The names of the logs in a directory and below; links to directories are not followed."""
    for folder, inner, files in os.walk(directory):
        inner[:] = [name for name in inner if not NAME.fullmatch(name)]
        for file in files:
            name = (Path(folder) / file).relative_to(directory).as_posix()
            if is_log(name, patterns):
                yield name


class LogCopies:
    """Copies each log once, and again when it has changed."""

    def __init__(self, store: Store, directory: Path, patterns: list[str]) -> None:
        self._store, self._directory, self._patterns = store, directory, patterns
        self._copied: dict[str, tuple[int, int]] = {}

    def behind(self) -> list[str]:
        """The logs that have changed since they were copied."""
        names = logs_in(self._directory, self._patterns)
        return sorted(name for name in names if self._copied.get(name) != self._sign(name))

    def copy(self) -> None:
        """Copy each log that has changed; it replaces the earlier copy at once."""
        for name in self.behind():
            sign = self._sign(name)
            try:
                with regular(self._directory / name) as file:
                    self._put(name, file, os.fstat(file.fileno()).st_size)
            except FileNotFoundError:
                if (self._directory / name).exists():
                    raise
                continue  # moved aside meanwhile
            self._copied[name] = sign

    def _put(self, name: str, file: BinaryIO, size: int) -> None:
        folder, _, last = name.rpartition("/")
        draft = f"{folder}/{DRAFT}{last}".lstrip("/")
        crc32 = list[int]()
        self._store.put(draft, _noted(first_bytes(file, size), crc32), size)
        self._store.compare(draft, size, crc32)
        self._store.move(draft, name)

    def _sign(self, name: str) -> tuple[int, int]:
        try:
            status = (self._directory / name).lstat()
        except FileNotFoundError:
            return (-1, -1)
        return (status.st_size, status.st_mtime_ns)


def first_bytes(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The bytes of a file up to a size, in pieces; the file may grow meanwhile."""
    while size and (piece := file.read(min(size, CHUNK))):
        size -= len(piece)
        yield piece


def _noted(pieces: Iterable[bytes], crc32: list[int]) -> Iterator[bytes]:
    for piece in pieces:
        crc32.append(zlib.crc32(piece))
        yield piece

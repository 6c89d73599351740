"""Changing names in a directory so that a power cut leaves the old or the new, never a half."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from uuid import uuid4


def synchronise(path: Path) -> None:
    """Wait until a file's bytes, or a directory's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory and its parents durably: a power cut does not lose them."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        synchronise(path.parent)


@contextmanager
def appearing(place: Path, aside: Path | None = None) -> Generator[Path, None, None]:
    """A temporary path beside `place`, which is durably renamed to `place` at the end.

    A directory that is at `place` already is durably renamed to `aside` before, if that is given.
    If an error is raised, the temporary path is removed; `aside` is not renamed back.
    """
    temporary = beside(place, "tmp")
    try:
        yield temporary
        synchronise(temporary)
        if aside is not None:
            place.rename(aside)
            synchronise(place.parent)
        temporary.replace(place)
        synchronise(place.parent)
    except BaseException:
        remove(temporary)
        raise


def beside(path: Path, kind: str) -> Path:
    """A new hidden name beside a path, of this kind."""
    return path.with_name(f".{kind}-{path.name}-{uuid4().hex}")


def remove(path: Path) -> None:
    """Remove a file or a directory, as far as the system lets it be removed."""
    if path.is_dir() and not path.is_symlink():
        rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()

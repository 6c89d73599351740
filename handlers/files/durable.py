"""Changing names in a directory so that a power cut leaves the old or the new, never a half."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from io import BufferedReader
from itertools import count
from pathlib import Path
from shutil import copyfileobj, copytree, rmtree
from typing import Any, BinaryIO
from uuid import uuid4

from .opening import created, refuse_odd, refuse_odd_directory, regular

logger: logging.Logger = logging.getLogger("camshaft")

PIECE = 2**18
"""Bytes that are compared at once: the processor still has them at hand."""
LEFTOVER = re.compile(r"\.(?:tmp|del)-(.+)-[0-9a-f]{32}")


def synchronise(path: Path) -> None:
    """Wait until a file's bytes, or a directory's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory and its parents durably: a power cut does not lose them.

    Raises:
        NotADirectoryError: The path is a link that leads nowhere.
    """
    if not path.is_dir():
        if path.is_symlink():
            raise NotADirectoryError(
                f"{path} is a link to {os.readlink(path)}, where no directory is; make that, mount "
                "its disk, or remove the link"
            )
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        synchronise(path.parent)


def make_directory_inside(directory: Path, *names: str) -> Path:
    """Make a directory, which may be a link of the user's own, and a folder inside it: no link.

    Returns:
        The folder.

    Raises:
        NotADirectoryError: A link or a file has the name of the folder, or of one around it.
    """
    make_directory(directory)
    for name in names:
        directory /= name
        refuse_odd_directory(directory)
        make_directory(directory)
    return directory


@contextmanager
def appearing(place: Path) -> Generator[Path, None, None]:
    """A temporary path beside `place`, durably renamed to it at the end; removed after an error."""
    temporary = beside(place, "tmp")
    try:
        yield temporary
        synchronise(temporary)
        temporary.replace(place)
        synchronise(place.parent)
    except BaseException:
        remove_path(temporary)
        raise


def put_in_place(path: Path, content: bytes) -> None:
    """Give a small file this content, all at once and durably."""
    with appearing(path) as draft, created(draft) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO, None, None]:
    """A new file that takes a file's place at the end: a reader finds the old or the new one.

    Only a power cut may lose it.

    Raises:
        NotRegularError: A link, a directory, a pipe or a device is there.
    """
    refuse_odd(path)
    temporary = beside(path, "tmp")
    try:
        with created(temporary) as file:
            yield file
        temporary.replace(path)
    except BaseException:
        remove_path(temporary)
        raise


def link_folder(source: Path, place: Path) -> bool:
    """Give the files of a folder further names, in a folder that appears as a whole at `place`.

    What was at `place` is removed first. The two folders share the bytes of files, and either may
    be removed; so the files must never change.

    Returns:
        False where the file system cannot do this, or the folders are on different ones.
    """
    make_directory(place.parent)
    sweep(place.parent, re.escape(place.name))
    remove_path(place)
    try:
        with appearing(place) as temporary:
            copytree(source, temporary, copy_function=os.link)
    except OSError:
        return False
    return True


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
        os.link(path, name, follow_symlinks=False)
        synchronise(name)  # the file may be a copy that was never fsynced
    except OSError as error:
        logger.debug("%s is written, since it cannot share the file of %s: %s", name, path, error)
        with suppress(FileNotFoundError):
            name.unlink()
        return False
    return True


def named_again(path: Path, name: Path) -> None:
    """Give a file that never changes a second name; where there are none, it is copied."""
    try:
        os.link(path, name, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        with regular(path) as file, created(name) as copy:
            copyfileobj(file, copy)
        synchronise(name)


def _holds(file: BufferedReader, pieces: Iterable[memoryview]) -> bool:
    """Whether a file holds just these bytes; reading ends at the first that differ."""
    found = bytearray()
    for piece in pieces:
        for begin in range(0, len(piece), PIECE):
            expected: Any = piece[begin : begin + PIECE]
            if len(found) != len(expected):
                found = bytearray(len(expected))
            # A bytearray compares as fast as memory is read, a memoryview number by number.
            if file.readinto(found) != len(found) or found != expected:
                return False
    return not file.read(1)


def beside(path: Path, kind: str) -> Path:
    """A new hidden name beside a path, of this kind."""
    return path.with_name(f".{kind}-{path.name}-{uuid4().hex}")


def sweep(directory: Path, of: str) -> None:
    """Remove temporary files and directories that killed processes left for certain names.

    Args:
        directory: Where to look; no process may be writing these names there.
        of: The regular expression of the names.
    """
    for path in directory.iterdir():
        found = LEFTOVER.fullmatch(path.name)
        if found and re.fullmatch(of, found[1]):
            remove_path(path)


def remove_path(path: Path) -> None:
    """Remove a file or a directory, as far as the system lets it be removed."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def move_aside(path: Path, kind: str) -> None:
    """Make place for a new file: rename another run's to `<path>.1`, or the next free number."""
    if not path.stat().st_size:
        path.unlink()
        return
    names = (path.with_name(f"{path.name}.{number}") for number in count(1))
    aside = next(name for name in names if not os.path.lexists(name))
    path.rename(aside)
    logger.warning("%s: %s holds the rows of another run; moved to %s", kind, path, aside)

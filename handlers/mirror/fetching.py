"""From the store to the disk: the newest good checkpoint, the logs, and whose run it is."""

from __future__ import annotations

import logging
import os
import random
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from shutil import disk_usage
from typing import Any, TypeVar
from uuid import uuid4

from ..checkpoint import CHUNK, MANIFEST, BrokenCheckpoint, checkpoints, look, unused_path
from ..files import (
    appearing,
    created,
    locked,
    make_directory,
    make_directory_inside,
    printable,
    refuse_odd,
    regular,
    size_of,
)
from .copies import RUN, SMALL, Copies, Copy, key_of, manifest_at, run_in
from .logs import is_log
from .store import Store

logger = logging.getLogger("camshaft")

LOGS = ("*.jsonl", "*.csv", "events.out.tfevents.*", "*/events.out.tfevents.*")
"""The logs that a run goes on with: of JSONLines, Journal, CSV and TensorBoard."""
WAITS = (1.0, 2.0, 4.0)
"""Seconds before each further attempt to read from the store."""
ENOUGH = 30.0
"""Seconds after which there is none: the library has tried again by itself."""

Result = TypeVar("Result")


class StoreError(OSError):
    """A store cannot be read."""


def fetch(
    url: str,
    directory: str | Path,
    *,
    options: Mapping[str, Any] | None = None,
    logs: Iterable[str] = LOGS,
) -> Path | None:
    """Fetch the newest good checkpoint and the logs of a mirrored run, if they are newer.

    `Mirror` does so by itself when a run resumes. This function is for a look at a run that goes on
    elsewhere, and for large checkpoints on several ranks, which would wait for the first one: call
    it before they start.

    Args:
        url: The address that was given to `Mirror`.
        directory: The run's directory; made if there is none.
        options: Storage options, as for `Mirror`.
        logs: Which logs to fetch, as for `Mirror`.

    Returns:
        The checkpoint that was fetched; None if the directory has what the store has.

    Raises:
        BlockingIOError: A run writes to the directory.
        FileExistsError: The directory holds another run.
        StoreError: The store cannot be read.
        ValueError: The store holds checkpoints, and all are broken.
    """
    drawn = random.getstate()  # the libraries of stores draw from Python's generator
    try:
        store = Store(str(url), options or {})
        copies = again(store, Copies)
        if not copies and not copies.broken:
            return None
        return take_over(store, Path(directory).absolute(), list(logs), copies)[1]
    finally:
        random.setstate(drawn)


def take_over(
    store: Store, directory: Path, logs: list[str], copies: Copies, *, is_new: bool = False
) -> tuple[str, Path | None]:
    """Give a directory the store's newest good checkpoint, if that is newer.

    Returns the name of the run, and the checkpoint.
    """
    make_directory(directory)
    with locked(directory):
        run = join(store, directory, copies, is_new=is_new)
        return run, _fetch_newest(store, directory, logs, copies)


def join(store: Store, directory: Path, copies: Copies, *, is_new: bool = False) -> str:
    """See that the directory and the store hold the same run; note and return its name.

    If the store has no checkpoints, it is the directory's run, or a new one.

    Raises:
        FileExistsError: They hold two runs.
    """
    here = _run_at(directory)
    if copies or copies.broken:
        there = again(store, run_in) or uuid4().hex
        if here != there and checkpoints(directory):
            raise FileExistsError(
                f"{store.url} holds the checkpoints of another run than {directory}; give this run "
                "an address of its own"
            )
        run = there
    else:
        run = uuid4().hex if here is None or is_new else here
    if here != run:
        with appearing(directory / RUN) as draft, created(draft) as file:
            file.write(run.encode())
    return run


def again(store: Store, read: Callable[[Store], Result]) -> Result:
    """What is read from a store, which may fail for some seconds.

    Raises:
        StoreError: It still fails.
        ValueError: What was read is wrong.
    """
    began = time.monotonic()
    for wait in (*WAITS, None):
        try:
            return read(store)
        except ValueError:
            raise
        except Exception as error:
            final = isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError)
            if wait is None or final or time.monotonic() - began > ENOUGH:
                raise StoreError(f"{store.url} cannot be read: {store.said(error)}") from None
            time.sleep(wait)
    raise AssertionError


def _fetch_newest(store: Store, directory: Path, logs: list[str], copies: Copies) -> Path | None:
    here = [each.saved.manifest.number for each in _good(directory) if each.saved]
    newest, broken = max(here, default=-1), list[str]()
    both = [*copies.values(), *copies.broken]
    for copy in sorted(both, key=lambda each: each.manifest.number, reverse=True):
        if copy.manifest.number <= newest:
            return None
        try:
            _fetch_logs(store, directory, logs, copies.sizes)
            return _receive(store, copy, directory)
        except BrokenCheckpoint as error:
            broken.append(f"{copy.place}: {error.reason}")
            logger.warning("passed over, a broken checkpoint: %s/%s", store.url, broken[-1])
    if broken and not here:
        raise ValueError(
            f"no checkpoint in {store.url} is good, and a run does not silently start anew; to "
            "start it, give it another address:" + "".join(f"\n  {each}" for each in broken)
        )
    return None


def _good(directory: Path) -> Iterable[Any]:
    try:
        return [each for each in look(directory, thoroughly=False) if each.problem is None]
    except FileNotFoundError:
        return []


def _receive(store: Store, copy: Copy, directory: Path) -> Path:
    """Fetch a checkpoint, which appears at once when all of it is there and right.

    Raises:
        BrokenCheckpoint: The store does not give what the manifest says.
    """
    manifest = copy.manifest
    content = again(store, lambda store: manifest_at(store, f"{copy.place}/{MANIFEST}"))
    if content is None or key_of(content[0]) != copy.key:
        raise BrokenCheckpoint(f"{MANIFEST} has changed")
    if (free := disk_usage(directory).free) < manifest.size:
        raise OSError(
            f"{manifest.size:,} bytes are needed in {directory} for {store.url}/{copy.place}, and "
            f"{free:,} are free"
        )
    place = unused_path(directory, manifest.iteration)
    with appearing(place) as draft:
        draft.mkdir()
        for name, sums in manifest.files.items():
            pieces = _pieces(store, f"{copy.place}/{name}", sums.size)
            _write(draft / name, _compared(pieces, sums.crc32, name))
        _write(draft / MANIFEST, [content[1]])
    logger.info("fetched %s from %s/%s", place, store.url, copy.place)
    return place


def _fetch_logs(store: Store, directory: Path, logs: list[str], sizes: dict[str, int]) -> None:
    """Fetch the logs that are longer in the store, or not here: a log of one run only grows."""
    for name, size in sizes.items():
        if not is_log(name, logs):
            continue
        place = directory
        for folder in name.split("/")[:-1]:
            place = place / folder
            make_directory_inside(place)
        place = directory / name
        refuse_odd(place)
        if not place.exists() or size_of(place) < size:
            with appearing(place) as draft:
                _write(draft, _pieces(store, name, size))


def _pieces(store: Store, name: str, size: int) -> Iterator[bytes]:
    """The pieces of an object, each of them tried several times.

    Raises:
        BrokenCheckpoint: It is not there, or shorter.
    """
    for at in range(0, size, CHUNK):
        end = min(at + CHUNK, size)

        def read(store: Store, at: int = at, end: int = end) -> bytes:
            try:
                return store.read(name, at, end)
            except FileNotFoundError:
                return b""

        piece = again(store, read)
        if len(piece) != end - at:
            raise BrokenCheckpoint(f"{name} is missing, or has fewer than {size} bytes")
        yield piece


def _compared(pieces: Iterable[bytes], crc32: list[int], name: str) -> Iterator[bytes]:
    for piece, expected in zip(pieces, crc32, strict=True):
        if zlib.crc32(piece) != expected:
            raise BrokenCheckpoint(f"{name} is damaged: its checksum is not that of the manifest")
        yield piece


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    with created(path) as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


def _run_at(directory: Path) -> str | None:
    try:
        with regular(directory / RUN) as file:
            return printable(file.read(SMALL).decode("ascii", "replace").strip()) or None
    except FileNotFoundError:
        return None

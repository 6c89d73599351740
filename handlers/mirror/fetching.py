"""From the store to the disk: the newest good checkpoint, the logs, and whose run it is."""

from __future__ import annotations

import errno
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from ..checkpoint import (
    MANIFEST,
    BrokenCheckpoint,
    checkpoints,
    look,
    need_space,
    saved_at,
    unused_path,
    verify_files,
)
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
    synchronise,
)
from .copies import RUN, SMALL, Copies, Copy, key_of, noted
from .logs import is_log
from .store import Store

logger = logging.getLogger("camshaft")

LOGS = ("*.jsonl", "*.csv", "events.out.tfevents.*", "*/events.out.tfevents.*")
"""The logs that a run goes on with: of JSONLines, Journal, CSV and TensorBoard."""
WAITS = (1.0, 2.0, 4.0)
"""Seconds before each further attempt to read from the store."""
ENOUGH = 30.0
"""Seconds after which there is none: the library has tried again by itself."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the disk says, and not the store."""

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
        The checkpoint that was fetched; None if the directory has what the store has, and if the
        store holds no checkpoint: `checkpoints(directory)` tells which of the two.

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
        return take_over(store, Path(directory).absolute(), list(logs), copies)
    finally:
        random.setstate(drawn)


def take_over(
    store: Store, directory: Path, logs: list[str], copies: Copies, *, is_new: bool = False
) -> Path | None:
    """Give a directory the store's newest good checkpoint, if that is newer."""
    make_directory(directory)
    with locked(directory):
        join(store, directory, copies, is_new=is_new)
        return _fetch_newest(store, directory, logs, copies)


def join(store: Store, directory: Path, copies: Copies, *, is_new: bool = False) -> str:
    """See that the directory and the store hold the same run; note and return its name.

    If the store has no checkpoints, it is the directory's run, or a new one.

    Raises:
        FileExistsError: They hold two runs.
    """
    here = _run_at(directory)
    if copies or copies.broken:
        run = again(store, lambda store: noted(store, RUN)) or uuid4().hex
        if here != run and checkpoints(directory):
            raise FileExistsError(
                f"{store.url} holds the checkpoints of another run than {directory}; give this run "
                "an address of its own"
            )
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
            if getattr(error, "errno", None) in FULL:
                raise
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
            if copy in copies.broken:
                raise BrokenCheckpoint("a file is missing, or has another size")
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
        OSError: The disk has no space.
    """
    need_space(directory, copy.manifest.size)
    place = unused_path(directory, copy.manifest.iteration)
    with appearing(place) as draft:
        draft.mkdir()
        for name in (*copy.manifest.files, MANIFEST):
            _get(store, f"{copy.place}/{name}", draft / name)
        saved = saved_at(draft, place.name)
        if key_of(saved.manifest) != copy.key:
            raise BrokenCheckpoint(f"{MANIFEST} has changed")
        verify_files(saved)
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
                _get(store, name, draft)


def _get(store: Store, name: str, path: Path) -> None:
    """Fetch an object to a new file, and wait until that is on the disk.

    Raises:
        BrokenCheckpoint: There is no such object.
    """

    def get(store: Store) -> None:
        try:
            store.get(name, path)
        except FileNotFoundError:
            raise BrokenCheckpoint(f"{name} is missing") from None

    again(store, get)
    synchronise(path)


def _run_at(directory: Path) -> str | None:
    try:
        with regular(directory / RUN) as file:
            return printable(file.read(SMALL).decode("ascii", "replace").strip()) or None
    except FileNotFoundError:
        return None

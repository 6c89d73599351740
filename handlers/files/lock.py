"""A lock: one writer to a directory at a time."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from .opening import is_still, opened, refuse_odd
from .printable import printable

try:
    import fcntl
except ImportError:  # Windows: the lock only holds within this process
    fcntl = None  # type: ignore[assignment]

logger: logging.Logger = logging.getLogger("camshaft")

LOCK = "LOCK"
LOCKED_BY_ANOTHER = (errno.EACCES, errno.EAGAIN)
POLL = 0.1
"""Seconds between two attempts to get a lock."""

_locks: dict[tuple[int, int], dict[str, Any]] = {}
"""The locks of this process by device and inode, with their owners.

The one table of the library that is global to the process: the system's locks do not hold against
their own process, and a directory must have one writer among all runs of the process.
"""
_guard = Lock()


@contextmanager
def locked(directory: Path, patience: float = 0.0) -> Generator[Callable[[], bool], None, None]:
    """Lock an existing directory against other runs of this process and against other processes.

    Gives a function that tells whether the path still is the directory with this lock: it may have
    been removed or moved.

    The system releases the lock when the process ends, however it ends, and forked processes do
    not inherit it. Readers of the directory need no lock. The process that holds the lock must not
    open the file `LOCK`: closing it would release the lock.

    Args:
        directory: The directory.
        patience: Seconds to wait for another process that has the lock, such as one that is ending.

    Raises:
        BlockingIOError: Another owner has the lock; the message says which process, where, since
            when.
        NotRegularError: `LOCK` is a link, a directory, a pipe or a device.
    """
    owner = {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    status = directory.stat()
    key = (status.st_dev, status.st_ino)
    with _guard:
        if key in _locks and _locks[key]["process"] == owner["process"]:
            refusal = _refusal(directory, _locks[key], "a run in this very process")
            refusal.add_note(
                "Two handlers of one engine need a directory each. If both are a Checkpoint, one "
                "is enough: combine their triggers, when=... | ..."
            )
            raise refusal
        descriptor = _acquire(directory, owner, time.monotonic() + patience)
        _locks[key] = owner
    try:
        if descriptor is None:
            yield partial(is_still, directory, status)
        else:
            yield partial(is_still, directory / LOCK, os.fstat(descriptor))
    finally:
        if os.getpid() == owner["process"]:  # a fork does not have the lock
            with _guard:
                del _locks[key]
                _release(directory, descriptor)


def _acquire(directory: Path, owner: dict[str, Any], end: float) -> int | None:
    path = directory / LOCK
    refuse_odd(path)
    if fcntl is None:
        return None
    is_announced = False
    while True:
        descriptor = opened(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            found = os.read(descriptor, 1000)
            os.close(descriptor)
            if error.errno in LOCKED_BY_ANOTHER:
                refusal = _refusal(directory, _owner_in(found), "another run")
                if (left := end - time.monotonic()) <= 0:
                    raise refusal from error
                if not is_announced:
                    logger.warning("waits up to %.0f s for its end: %s", left, refusal)
                is_announced = True
                time.sleep(POLL)
                continue
            logger.warning(
                "%s cannot be locked, so a second writer would not be noticed: %s", directory, error
            )
            return None
        if is_still(path, os.fstat(descriptor)):  # otherwise its owner has just removed the file
            if os.fstat(descriptor).st_nlink == 1:
                os.truncate(descriptor, 0)
                os.write(descriptor, json.dumps(owner).encode())
                return descriptor
            path.unlink()  # a file that has another name too, under which it stays as it is
        os.close(descriptor)


def _release(directory: Path, descriptor: int | None) -> None:
    if descriptor is not None:
        with suppress(OSError):
            if is_still(
                directory / LOCK, os.fstat(descriptor)
            ):  # another directory may have taken the path
                (directory / LOCK).unlink()
        os.close(descriptor)


def _owner_in(content: bytes) -> dict[str, Any]:
    try:
        owner = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _refusal(directory: Path, owner: dict[str, Any], who: str) -> BlockingIOError:
    process, host, since = (
        printable(str(owner.get(key, "unknown"))) for key in ("process", "host", "since")
    )
    return BlockingIOError(
        f"{who} writes to {directory} (process {process} on {host}, since {since}); wait for its "
        "end, or choose another directory"
    )

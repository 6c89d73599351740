"""What goes wrong: a checkpoint that cannot be trusted, and memory that runs out at a save."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ...files import printable

OF_THE_SYSTEM = {
    getattr(errno, name)
    for name in (
        *("EIO", "ESTALE", "ETIMEDOUT", "EREMOTEIO", "ENOTCONN", "EHOSTDOWN", "ENETDOWN"),
        *("EACCES", "EPERM", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "EINTR", "EBUSY"),
    )
    if hasattr(errno, name)
}
"""Errors of reading that say nothing about the content of the file."""


OF_NO_MEMORY = (
    *("can't allocate memory", "cannot allocate memory", "out of memory", "not enough memory"),
    "can't start new thread",
)
"""Texts in RuntimeErrors of torch and Python when memory or threads have run out."""


class BrokenCheckpoint(ValueError):  # noqa: N818  # reads as what it is
    """A checkpoint is damaged, incomplete, hostile or not ours, and none of it was loaded.

    The message quotes files, so control characters in it are escaped.

    >>> print(BrokenCheckpoint("state.json is no regular file", Path("runs/iteration-0000000001")))
    the checkpoint runs/iteration-0000000001 is broken: state.json is no regular file
    """

    def __init__(self, reason: str, path: Path | None = None) -> None:
        super().__init__(reason, path)
        self.reason: str = printable(reason)
        self.path = path

    def __str__(self) -> str:
        place = f" {printable(str(self.path))}" if self.path else ""
        return f"the checkpoint{place} is broken: {self.reason}"


class UnreadCheckpoint(BrokenCheckpoint):
    """A file of a checkpoint could not be read now; its bytes may be right.

    >>> print(UnreadCheckpoint("state.json cannot be read: Input/output error", Path("runs/x")))
    the checkpoint runs/x could not be read: state.json cannot be read: Input/output error. It \
may be whole, so no other one is taken for it; start again, or move it away
    """

    def __str__(self) -> str:
        place = f" {printable(str(self.path))}" if self.path else ""
        return (
            f"the checkpoint{place} could not be read: {self.reason}. It may be whole, so no other "
            "one is taken for it; start again, or move it away"
        )


class UnreadableError(OSError):
    """A checkpoint was written and cannot be read; another attempt would end in the same way."""


@contextmanager
def reading(path: Path | None = None, file: str = "") -> Generator[None, None, None]:
    """Any error inside means that this file of the checkpoint at `path` is broken.

    Raises:
        UnreadCheckpoint: The system could not read the file, such as after an error of the disk.
        BrokenCheckpoint: An `Exception` was raised inside, of any kind: a hostile file can cause
            any of them. `KeyboardInterrupt` and the like pass.
    """
    try:
        yield
    except BrokenCheckpoint as error:
        if error.path is not None or path is None:
            raise
        raise type(error)(error.reason, path) from error
    except Exception as error:
        said = _said(error)[:1000]  # a hostile file can make the message long
        unread = isinstance(error, OSError) and error.errno in OF_THE_SYSTEM
        kind = UnreadCheckpoint if unread else BrokenCheckpoint
        raise kind(said if file in said else f"{file} {said}", path) from error


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    if isinstance(error, OSError) or type(error) is ValueError:
        return str(error)
    return f"has invalid content ({type(error).__name__}: {error})"


class NoMemory(OSError):  # noqa: N818  # reads as what it is
    """Memory or threads have run out in a task of a save: ENOMEM."""

    def __init__(self, task: str, cause: BaseException, advice: str = "") -> None:
        said = (str(cause).splitlines() or [""])[0]
        super().__init__(f"could not {task} ({type(cause).__name__}: {said}){advice}")
        self.errno: int | None = errno.ENOMEM


@contextmanager
def needing_memory(task: str, advice: str = "") -> Generator[None, None, None]:
    """Raise an OSError with this task, and what to do, if memory or threads run out inside.

    >>> with needing_memory("copy the model"):
    ...     bytes(2**62)
    Traceback (most recent call last):
    ...
    camshaft.handlers.checkpoint.format.errors.NoMemory: could not copy the model (MemoryError: )
    """
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        if isinstance(error, NoMemory) or not _has_run_out(error):
            raise
        # The new error has no local name: its frame would keep the unfinished copy in memory.
        raise NoMemory(task, error, advice) from error


def _has_run_out(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    said = str(error).lower()
    return isinstance(error, MemoryError) or any(each in said for each in OF_NO_MEMORY)

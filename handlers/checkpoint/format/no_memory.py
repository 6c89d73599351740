"""Memory or threads that run out at a save, as an OSError: a failure of the machine."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager

SAID = (
    *("can't allocate memory", "cannot allocate memory", "out of memory", "not enough memory"),
    "can't start new thread",
)
"""What torch and Python say in a RuntimeError when memory or threads have run out."""


class NoMemory(OSError):  # noqa: N818  # reads as what it is
    """Memory or threads have run out in a task of a save: ENOMEM."""

    def __init__(self, task: str, cause: BaseException, advice: str = "") -> None:
        said = (str(cause).splitlines() or [""])[0]
        super().__init__(f"could not {task} ({type(cause).__name__}: {said}){advice}")
        self.errno = errno.ENOMEM


@contextmanager
def needing_memory(task: str, advice: str = "") -> Generator[None, None, None]:
    """Raise an OSError with this task, and what to do, if memory or threads run out inside.

    >>> with needing_memory("copy the model"):
    ...     bytes(2**62)
    Traceback (most recent call last):
    ...
    camshaft.handlers.checkpoint.format.no_memory.NoMemory: could not copy the model (MemoryError: )
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
    return isinstance(error, MemoryError) or any(each in said for each in SAID)

"""A checkpoint that cannot be trusted: damaged, incomplete, hostile or not ours."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ...files import printable


class BrokenCheckpoint(ValueError):  # noqa: N818  # reads as what it is
    """A checkpoint is damaged, incomplete, hostile or not ours, and none of it was loaded.

    What a terminal would obey is escaped in the message, since it quotes the files.

    >>> print(BrokenCheckpoint("state.json is no regular file", Path("runs/iteration-0000000001")))
    the checkpoint runs/iteration-0000000001 is broken: state.json is no regular file
    """

    def __init__(self, reason: str, path: Path | None = None) -> None:
        super().__init__(reason, path)
        self.reason = printable(reason)
        self.path = path

    def __str__(self) -> str:
        place = f" {printable(str(self.path))}" if self.path else ""
        return f"the checkpoint{place} is broken: {self.reason}"


@contextmanager
def reading(path: Path | None = None, file: str = "") -> Generator[None, None, None]:
    """Any error inside means that this file of the checkpoint at `path` is broken.

    Raises:
        BrokenCheckpoint: An `Exception` was raised inside, of any kind: a hostile file can cause
            any of them. `KeyboardInterrupt` and the like pass.
    """
    try:
        yield
    except BrokenCheckpoint as error:
        if error.path is not None or path is None:
            raise
        raise BrokenCheckpoint(error.reason, path) from error
    except Exception as error:
        said = _said(error)[:1000]  # a hostile file can make the message long
        raise BrokenCheckpoint(said if file in said else f"{file} {said}", path) from error


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    if isinstance(error, OSError) or type(error) is ValueError:
        return str(error)
    return f"has invalid content ({type(error).__name__}: {error})"

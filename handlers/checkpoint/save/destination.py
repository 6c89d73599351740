"""Where a handler's checkpoints go: its settings, checked when the handler is made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ..format import Keep, keep_of
from .writer import OnFailure

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@dataclass(frozen=True)
class Destination:
    """Where a handler's checkpoints are written, how, and which of them are kept."""

    directory: str | Path
    keep: Keep
    background: bool
    retries: int
    on_failure: OnFailure
    is_mirrored: bool = True
    """True for checkpoints, which `Mirror` copies; it copies no exports."""

    def __post_init__(self) -> None:
        if not isinstance(self.directory, str | PathLike):
            raise TypeError(
                f"directory={self.directory!r}: needs the path of a directory, such as 'runs/name'"
            )
        if not isinstance(self.keep, Keep):
            raise TypeError(
                f"keep={self.keep!r}: needs latest(...), best(...), every(...), or several of them "
                "combined with |"
            )
        if not isinstance(self.retries, int) or isinstance(self.retries, bool):
            raise TypeError(f"retries={self.retries!r}: needs a whole number")
        if self.retries < 0:
            raise ValueError(f"retries={self.retries}: needs a number that is not negative")
        if self.on_failure not in ("raise", "warn"):
            raise ValueError(f"on_failure={self.on_failure!r}: needs 'raise' or 'warn'")
        if ADDRESS.match(str(self.directory)):
            remedy = (
                f"add Mirror({str(self.directory)!r}) to the engine: it copies finished "
                "checkpoints there, and fetches them to an empty disk"
                if self.is_mirrored
                else "copy the export there when the run is done: Mirror copies checkpoints alone"
            )
            raise ValueError(
                f"directory={str(self.directory)!r}: needs a directory on a file system. A whole "
                "checkpoint rests on fsync and on an atomic rename, which object stores do not "
                f"have. Write to a local disk or a mounted file system, and {remedy}"
            )
        _check_text(self.keep)
        if Path(self.directory).is_file():
            raise NotADirectoryError(
                f"directory={str(self.directory)!r} is a file; name a directory for checkpoints"
            )


def _check_text(keep: Keep) -> None:
    """Refuse claims that `camshaft inspect` could not read from a manifest."""
    try:
        keep_of(repr(keep))
    except ValueError as error:
        raise ValueError(f"{error}; keep= is saved as this text, so use fewer claims") from error

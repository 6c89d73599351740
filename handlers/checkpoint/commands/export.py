"""`camshaft export`: one file for programs that do not know Camshaft."""

from __future__ import annotations

from pathlib import Path

from ...common import readable_size
from ..directory.catalogue import checkpoints
from ..directory.saved import look_at
from .found import is_checkpoint, look


def export(path: Path, file: Path, object: str | None) -> int:
    """Export that checkpoint, or the newest good one of a directory."""
    if is_checkpoint(path):
        saved = look_at(path)
    else:
        look(path, thoroughly=False)  # raises if there is none
        newest = checkpoints(path).latest()
        assert newest is not None
        saved = newest
    saved.export(file, object)
    print(f"{file}  {readable_size(file.stat().st_size)}  from {saved.path}")
    return 0

"""`camshaft export`: one file for programs that do not know Camshaft."""

from __future__ import annotations

from pathlib import Path

from ...common import readable_size, show
from ..directory import checkpoints, is_checkpoint, look, saved_at


def export(path: Path, file: Path, object: str | None) -> int:
    """Export the checkpoint at a path, or the newest good one of a directory."""
    if is_checkpoint(path):
        saved = saved_at(path)
    else:
        look(path, thoroughly=False)  # raises if the directory holds no checkpoint
        newest = checkpoints(path).latest()
        assert newest is not None
        saved = newest
    saved.export(file, object)
    show([f"{file}  {readable_size(file.stat().st_size)}  from {saved.path}"])
    return 0

"""A whole run as named bytes, in the format of a checkpoint, and such bytes put into a new run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...engine import State
from .directory import write_checkpoint
from .format import Manifest, Payload, installed_versions
from .load import resume
from .save import streamed, take_part, take_run
from .sharding import Layout

IN_MEMORY = "/dev/shm"


def run_as_bytes(state: State[Any, Any]) -> dict[str, bytes]:
    """The files of a checkpoint of this run, copied; call it at a commit point.

    Raises:
        TypeError: A value cannot be saved.
    """
    engine = state.engine
    snapshot = take_run(engine.objects, take_part(state), Layout(), engine.lent, {}, {})
    return {name: b"".join(each.pieces()) for name, each in streamed(snapshot).items()}


def put_run(state: State[Any, Any], files: Mapping[str, bytearray], handler: str) -> None:
    """Put a run into a state that has not begun, and into the engine's objects.

    The files go through a folder in memory, and are read, compared with the script and put in place
    like those of a checkpoint.

    Raises:
        BrokenCheckpoint: These are no files of a run.
        ValueError: The run does not fit the script; nothing is changed.
    """
    if odd := [name for name in files if Path(name).name != name]:
        raise ValueError(f"a replica sent files with the names {odd}, which no run has")
    place = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with TemporaryDirectory(dir=place) as folder:
        payloads = {name: Payload.of(memoryview(each)) for name, each in files.items()}
        manifest = Manifest(versions=installed_versions())
        saved = write_checkpoint(Path(folder), payloads, manifest)
        resume(state, saved.path, handler)

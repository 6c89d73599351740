"""A whole run as named bytes, in the format of a checkpoint, and such bytes put into a new run."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from socket import gethostname
from tempfile import mkdtemp
from typing import Any

from ....engine import State, ranks
from ...checkpoint import Checkpoints, Checksums, Directory, Manifest
from ...checkpoint.load import resume
from ...checkpoint.save import Snapshot
from ...files import created

IN_MEMORY = "/dev/shm"


def run_as_bytes(state: State[Any, Any]) -> dict[str, bytes]:
    """The files of a checkpoint of this run, copied; call it at a commit point, on all ranks.

    On several ranks, these are the files of this rank.

    Raises:
        TypeError: A value cannot be saved.
    """
    files = Snapshot.of(state).streamed()
    return {name: b"".join(each.pieces()) for name, each in files.items()}


def put_run(state: State[Any, Any], files: Mapping[str, bytearray], handler: str) -> None:
    """Put a run into a state that has not begun, and into the engine's objects, on all ranks.

    The files go through a folder in memory, and are read, compared with the script and put in place
    like those of a checkpoint. The ranks of a machine bring all files of all ranks together, each
    of them once.

    Raises:
        BrokenCheckpoint: These are no files of a run.
        ValueError: The run does not fit the script; nothing is changed.
    """
    if odd := [name for name in files if Path(name).name != name]:
        raise ValueError(f"a replica sent files with the names {odd}, which no run has")
    with _folder() as folder:
        new, own = folder / "new", dict[str, Checksums]()
        with ranks.on_all_ranks("write the run that it joins"):
            new.mkdir(exist_ok=True)
            for name, content in files.items():
                with created(new / name) as file:
                    file.write(content)
                own[name] = Checksums.of(new / name)
        found = dict[str, Checksums]()
        for each in ranks.gathered(own):
            found |= each
        with ranks.on_all_ranks("write the run that it joins"):
            if ranks.local_rank() == 0:
                manifest = Manifest(world_size=ranks.world_size(), files=found)
                Directory(folder).commit(new, manifest)
        with ranks.on_all_ranks("read the run that it joins"):
            (saved,) = Checkpoints(folder)
        resume(state, saved, handler)


@contextmanager
def _folder() -> Generator[Path]:
    """A folder in memory that the ranks of a machine share; it is gone after the `with` block."""
    place = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with ranks.on_all_ranks("make a folder for the run that it joins"):
        own = mkdtemp(prefix="camshaft-", dir=place) if ranks.local_rank() == 0 else ""
    host = gethostname()  # two machines may be containers that share their memory, or their name
    before = reversed(ranks.gathered((host, own))[: ranks.rank() + 1])
    folder = next(made for where, made in before if where == host and made)
    try:
        yield Path(folder)
    finally:
        rmtree(folder, ignore_errors=True)  # by each rank, since another one may have been killed

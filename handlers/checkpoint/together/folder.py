"""Checks that all ranks see the same directory: else it would lack the pieces of some."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

from ....engine import ranks
from ...files import beside, created

SECONDS = 5.0
"""Seconds that a rank looks for a file made on another host: network file systems are slow."""


def meet(directory: Path) -> str:
    """Check that all ranks see the directory of rank 0; return a new name that all of them know.

    Raises:
        FileNotFoundError: A rank sees another directory: on all ranks.
        OSError: Rank 0 cannot write to the directory.
    """
    probe = beside(directory / "iteration-0", "tmp")
    with ranks.on_all_ranks(f"write to {directory}"):
        if ranks.rank() == 0:
            with created(probe):
                pass
    try:
        name, host, place = ranks.gathered((probe.name, socket.gethostname(), str(directory)))[0]
        found = _is_there(directory / name)
        seen = ranks.gathered((found, socket.gethostname(), str(directory)))
    finally:
        if ranks.rank() == 0:
            with suppress(OSError):
                probe.unlink()
    if blind := [rank for rank, (is_there, *_) in enumerate(seen) if not is_there]:
        _, other, theirs = seen[blind[0]]
        listed = ", ".join(map(str, blind[:8])) + (", ..." if len(blind) > 8 else "")
        raise FileNotFoundError(
            f"rank {listed} (first on {other}, in {theirs}) does not see what rank 0 writes on "
            f"{host} in {place}: several ranks write one checkpoint together, so they need one "
            "directory. Name a folder that all hosts share, by the same absolute path on each"
        )
    return str(name).rpartition("-")[2]


def temporary_path(directory: Path, iteration: int, session: str, number: int) -> Path:
    """Where all ranks write one save: a hidden name, which is removed if the run is killed."""
    unique = f"{int(session, 16) ^ number:032x}"
    return directory / f".tmp-iteration-{iteration:010d}-{unique}"


def _is_there(path: Path) -> bool:
    until = time.monotonic() + SECONDS
    while not path.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True

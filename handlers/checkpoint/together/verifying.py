"""Which checkpoint several ranks resume from: rank 0 chooses, and all read a part of its bytes."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ....engine import ranks
from ..directory import BrokenPieces, Saved, saved_at, verify_files, verify_part
from ..format import BrokenCheckpoint, reading

Result = TypeVar("Result")
Verify = Callable[[Saved], None]
"""Raises BrokenCheckpoint if a checkpoint is not whole."""


def chosen(choose: Callable[[Verify], Result]) -> Result:
    """What rank 0 chooses among checkpoints that all ranks verify, on all ranks.

    A checkpoint that is tried takes one broadcast and one gather, and each rank reads its part of
    the files.

    Args:
        choose: Called on rank 0 alone; verifies one checkpoint after the other by what it is given.

    Raises:
        Exception: What `choose` raises, on all ranks.
    """
    if ranks.world_size() == 1:
        return choose(verify_files)
    with ranks.on_all_ranks("find a checkpoint"):
        result: Result | None = None
        if ranks.rank() == 0:
            try:
                result = choose(_verify_together)
            finally:
                ranks.from_first(None)
        else:
            while (path := ranks.from_first(None)) is not None:
                _answer(path)
    return ranks.from_first(result)  # type: ignore[return-value]  # of rank 0, which has one


def _verify_together(saved: Saved) -> None:
    """On rank 0: let each rank verify its part.

    Raises:
        BrokenCheckpoint: A rank has found damage; of several, that which comes first in the files.
    """
    ranks.from_first(saved.path)
    if found := _answer(saved.path):
        _, number, host, reason = found
        by = f" (as rank {number} on {host} has read it)" if number else ""
        raise BrokenCheckpoint(f"{reason}{by}", saved.path)


def _answer(path: Path) -> tuple[int, int, str, str] | None:
    """Verify this rank's part and tell rank 0, which gets the first damage that any rank finds."""
    found: tuple[int, int, str, str] | None = None
    try:
        with reading(path):
            verify_part(saved_at(path), ranks.rank(), ranks.world_size())
    except BrokenCheckpoint as error:
        # What a damaged file holds says less than that it is damaged.
        later = isinstance(error, BrokenPieces)
        found = (later, ranks.rank(), socket.gethostname(), error.reason)
    told = ranks.gathered_at_first(found) or []
    return min(filter(None, told), default=None)

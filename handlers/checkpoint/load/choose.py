"""Chooses the checkpoint that several ranks resume from: rank 0 tries, and all verify a part."""

from __future__ import annotations

import socket
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from ....engine import ranks
from ..directory import BrokenPieces, Saved, saved_at, verify_files, verify_part
from ..format import BrokenCheckpoint, UnreadCheckpoint, reading

Result = TypeVar("Result")
Verify = Callable[[Saved], None]
"""Raises BrokenCheckpoint if a checkpoint is not whole."""
Found = tuple[bool, int, str, type[BrokenCheckpoint], str]
"""Whether all bytes of the rank's part are right; the rank; its host; the error; the reason."""


def chosen(choose: Callable[[Verify], Result], alone: Verify = verify_files) -> Result:
    """Let rank 0 choose among checkpoints that all ranks verify; return its choice on all ranks.

    To try a checkpoint takes one broadcast and one gather. Each rank reads its part of the files.

    Args:
        choose: Called on rank 0 alone, with a function that verifies one checkpoint at a time.
        alone: How the only rank verifies.

    Raises:
        UnreadCheckpoint: A rank could not read a file: on all ranks, with its number and host.
        Exception: Any other error of `choose`, on all ranks.
    """
    if ranks.world_size() == 1:
        return choose(alone)
    with ranks.on_all_ranks("find a checkpoint"):
        result: Result | None = None
        if ranks.rank() == 0:
            ends: BrokenCheckpoint | None = None
            try:
                result = choose(_verify_together)
            except BrokenCheckpoint as error:
                ends = error
                raise
            finally:
                ranks.from_first(ends)
        else:
            while isinstance(told := ranks.from_first(None), Path):
                _answer(told)
            if told is not None:
                raise told
    return ranks.from_first(result)  # type: ignore[return-value]  # of rank 0, which has one


def _verify_together(saved: Saved) -> None:
    """On rank 0: let each rank verify its part.

    Raises:
        UnreadCheckpoint: A rank could not read a file.
        BrokenCheckpoint: A rank has found damage; of several, the first in the order of files.
    """
    ranks.from_first(saved.path)
    if found := _answer(saved.path):
        _, number, host, kind, reason = found
        by = f" (as rank {number} on {host} has read it)" if number else ""
        raise kind(f"{reason}{by}", saved.path)


def _answer(path: Path) -> Found | None:
    """Verify this rank's part and tell rank 0, which gets the first damage that any rank finds."""
    found: Found | None = None
    try:
        with reading(path):
            verify_part(saved_at(path), ranks.rank(), ranks.world_size())
    except BrokenCheckpoint as error:
        # Damaged bytes explain wrong pieces, so they are reported first.
        later = isinstance(error, BrokenPieces)
        kind = UnreadCheckpoint if isinstance(error, UnreadCheckpoint) else BrokenCheckpoint
        found = (later, ranks.rank(), socket.gethostname(), kind, error.reason)
    told = ranks.gathered_at_first(found) or []
    return min(filter(None, told), default=None, key=itemgetter(0, 1))

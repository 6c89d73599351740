"""Saves that all ranks make: agreed on at the commit point, before any thread writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....engine import ranks
from ..together import Saving, Taken, meet, temporary_path
from .content import Content, Copied

GRACE = 4.0
"""Seconds that a run which ends with an error waits for other ranks, which may be gone."""
SKIPPED, NO_MEMORY = -1, -2
"""Sent in place of a digest by a rank that writes nothing: no claim, or no memory for it."""


class Agreement:
    """What the ranks agree on for each save, by messages whose number and size are constant."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._session = ""
        """A random number that all ranks know, of which names of temporary directories are made."""
        self._saves = 0
        self._given_up: float | None = None
        """When the run ended with an error, after which other ranks may be gone."""

    def meet(self) -> None:
        """Check that all ranks see the directory."""
        self._session = meet(self._directory)

    def give_up(self) -> None:
        """Note that the run ended with an error: wait at most `GRACE` seconds for silent ranks."""
        self._given_up = time.monotonic()

    def copied_by_all(
        self,
        take: Callable[[], Content | None],
        is_wanted: Callable[[], bool],
        copy: Callable[[Content], Copied | None],
    ) -> tuple[Content, Copied] | None:
        """What this rank has taken and copied for a save; None unless all ranks have done so.

        Args:
            take: What this rank saves; None without the memory for it.
            is_wanted: False on rank 0 if no claim would keep the save.
            copy: The files of it; None without the memory for it.

        Raises:
            RuntimeError: The ranks save different objects, or distribute them differently.
        """
        with ranks.on_all_ranks("take part in a checkpoint"):
            content = take()
            own = _digest(content) if is_wanted() else SKIPPED
        first = int(ranks.agreed(own))
        if first == SKIPPED:
            return None
        with ranks.on_all_ranks("copy its part of a checkpoint"):
            if first != NO_MEMORY and own not in (first, NO_MEMORY):
                raise RuntimeError(
                    f"rank {ranks.rank()} saves other objects, or distributes them otherwise, than "
                    "rank 0: several ranks make one checkpoint only of the same objects on one mesh"
                )
            made = None if content is None else copy(content)
        if ranks.any_rank(made is None) or made is None or content is None:
            return None
        return content, made

    def saving(self, iteration: int, several_times: Callable[[Callable[[], Any]], Any]) -> Saving:
        """The next save, in a temporary directory whose name all ranks know."""
        self._saves += 1
        return Saving(
            self._directory,
            temporary_path(self._directory, iteration, self._session, self._saves),
            ranks.rank(),
            ranks.world_size(),
            several_times,
            self._is_over,
        )

    def _is_over(self) -> bool:
        """True once silent ranks are no longer waited for."""
        return self._given_up is not None and time.monotonic() - self._given_up > GRACE


def _digest(content: Content | None) -> int:
    if content is None:
        return NO_MEMORY
    return content.digest if isinstance(content, Taken) else 0

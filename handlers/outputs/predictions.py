"""What `predict` has written, read back sample by sample."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain as chained
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..checkpoint import Checkpoints, Saved, checkpoints
from ..files import refuse_odd_directory
from .rows import chain, deal, join, row_of
from .shards import OUTPUTS

END = object()
PART = re.compile(r"rank-(\d+)-of-(\d+)")


class Predictions:
    """The samples that `predict` has written to a directory, in the order of the data.

    `len(predictions)` is their number. Iterating reads a shard of each rank at a time. A shard is
    a directory with the tensors in `outputs.safetensors`, which other tools can read.

    >>> Predictions("there/is/no/such/directory").worlds()
    set()
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    def __len__(self) -> int:
        """The number of samples.

        Raises:
            ValueError: The pass is not complete.
        """
        return sum(_count(shard) for part in self._parts() for shard in part)

    def __iter__(self) -> Iterator[Any]:
        """The samples, each in the form of the output with one row of each part.

        Raises:
            BrokenCheckpoint: A file is damaged.
            ValueError: The pass is not complete.
        """
        parts = self._parts()
        samples = map(_samples, parts)
        if not _are_interleaved(parts):
            yield from chained.from_iterable(samples)
            return
        for row in zip_longest(*samples, fillvalue=END):
            yield from (each for each in row if each is not END)

    def load(self) -> Any:
        """All samples at once, joined as `Collect` joins them; None if there are none.

        Raises:
            BrokenCheckpoint: A file is damaged.
            ValueError: The pass is not complete.
        """
        parts = self._parts()
        rows = [list(map(_rows, part)) for part in parts]
        held = [[each for each in part if each is not None] for part in rows]
        found = [join(part, chain) for part in held if part]
        return join(found, deal if _are_interleaved(parts) else chain) if found else None

    def worlds(self) -> set[int]:
        """The numbers of ranks that have written to the directory: one, unless they are mixed.

        Raises:
            NotADirectoryError: A link or a file has the name of a rank's directory.
        """
        found = [each for each in self.directory.glob("rank-*-of-*") if PART.fullmatch(each.name)]
        for each in found:
            refuse_odd_directory(each)
        return {int(each.name.rpartition("-")[2]) for each in found}

    def part(self, rank: int, ranks: int) -> Path:
        """The directory of one rank of so many."""
        return self.directory / f"rank-{rank}-of-{ranks}"

    def _parts(self) -> list[Checkpoints]:
        """The shards of each rank; all are there."""
        worlds = self.worlds()
        if not worlds:
            raise ValueError(
                f"{self.directory} holds no predictions; give the directory that predict() got, or "
                "call predict() first"
            )
        count = next(iter(worlds)) if len(worlds) == 1 else 0
        parts = [checkpoints(self.part(rank, count)) for rank in range(count)]
        lacking = [part.directory.name for part in parts if not _is_whole(part)]
        if lacking or len(worlds) > 1:
            where = (
                ", ".join(lacking) or f"the directory, which has parts of {sorted(worlds)} ranks"
            )
            raise ValueError(
                f"the predictions in {self.directory} are not complete: {where}. Call predict() "
                "again, which carries on; a damaged part has to be removed before"
            )
        return parts


def _is_whole(part: Checkpoints) -> bool:
    """True if no shard is missing or unreadable, up to the end of the data."""
    ends = [shard.manifest.iteration for shard in part]
    begins = [shard.manifest.metrics["after"] for shard in part]
    is_over = bool(part) and part[-1].manifest.epoch > 0
    return is_over and not part.broken and begins == [0, *ends[:-1]]


def _are_interleaved(parts: list[Checkpoints]) -> bool:
    return bool(parts[0][0].manifest.metrics["interleaved"])


def _samples(part: Checkpoints) -> Iterator[Any]:
    for shard in part:
        rows = _rows(shard)
        yield from (row_of(rows, at) for at in range(_count(shard)))


def _rows(shard: Saved) -> Any:
    return shard.state_dict(OUTPUTS)["rows"]


def _count(shard: Saved) -> int:
    return int(shard.manifest.metrics["samples"])

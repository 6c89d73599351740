"""What `predict` has written, read back sample by sample."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain as chained
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from ..checkpoint import BrokenCheckpoint, Checkpoints, Manifest, Saved, checkpoints, reading
from ..files import refuse_odd_directory
from .rows import chain, deal, join_parts, lengths_of, row_of
from .shards import OUTPUTS

END = object()
LARGEST = 2**40
"""A count in a manifest has to be less than this."""
PART = re.compile(r"rank-(\d{1,9})-of-([1-9]\d{0,8})", re.ASCII)
SHOWN = 5
"""The most missing parts that a message names: a file name can imply any number."""


class Predictions:
    """The samples that `predict` has written to a directory, in the order of the data.

    `len(predictions)` is their number. Iterating reads a shard of each rank at a time. A shard is
    a directory with the tensors in `outputs.safetensors`, which other tools can read.

    >>> Predictions("there/is/no/such/directory").worlds()
    set()
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory: Path = Path(directory)

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
        filled = [[each for each in part if each is not None] for part in rows]
        with reading(self.directory, "the shards"):  # the shards may have different structures
            found = [join_parts(part, chain) for part in filled if part]
            return join_parts(found, deal if _are_interleaved(parts) else chain) if found else None

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
        """The shards of each rank, if none is missing."""
        worlds = self.worlds()
        if not worlds:
            raise ValueError(
                f"{self.directory} holds no predictions; give the directory that predict() got, or "
                "call predict() first"
            )
        count = next(iter(worlds)) if len(worlds) == 1 else 0
        absent = (rank for rank in range(count) if not self.part(rank, count).is_dir())
        lacking = [self.part(rank, count).name for rank in islice(absent, SHOWN)]
        parts = [checkpoints(self.part(rank, count)) for rank in range(0 if lacking else count)]
        lacking += [part.directory.name for part in parts if not _is_whole(part)]
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
    begins = [_number(shard, "after") for shard in part]
    is_over = bool(part) and part[-1].manifest.epoch > 0
    return is_over and not part.broken and begins == [0, *ends[:-1]]


def _are_interleaved(parts: list[Checkpoints]) -> bool:
    return bool(_number(parts[0][0], "interleaved"))


def _samples(part: Checkpoints) -> Iterator[Any]:
    for shard in part:
        rows = _rows(shard)
        yield from (row_of(rows, at) for at in range(_count(shard)))


def _rows(shard: Saved) -> Any:
    """The samples of a shard; each of its parts has as many rows as the manifest says.

    Raises:
        BrokenCheckpoint: A file is damaged, or holds something else.
    """
    with reading(shard.path, f"{OUTPUTS}.safetensors"):
        rows, count = shard.state_dict(OUTPUTS)["rows"], _count(shard)
        if (lengths := {0} if rows is None else lengths_of(rows)) != {count}:
            raise ValueError(f"has parts of {sorted(lengths)} rows, and its manifest says {count}")
    return rows


def _count(shard: Saved) -> int:
    return _number(shard, "samples")


def _number(shard: Saved, name: str) -> int:
    """A count in the manifest of a shard.

    Raises:
        BrokenCheckpoint: The manifest has no such count.
    """
    found = shard.manifest.metrics.get(name)
    if found is None or not 0 <= found < LARGEST or found != int(found):
        raise BrokenCheckpoint(
            f"{Manifest.FILE} is not of predictions: {name} is {found}", shard.path
        )
    return int(found)

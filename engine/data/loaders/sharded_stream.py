"""A stream over shards, whose position is the number of samples that each shard has given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import PurePath
from typing import Any, NamedTuple
from zlib import crc32

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import worker

from ... import ranks
from ...state import (
    capture_generators,
    restore_generators,
    seed_all,
    seed_of,
    whole_number,
    whole_seed,
)

WORKER: Any = worker
IN_ORDER = 32
"""The samples of a shard that are read together where nothing is shuffled."""


Begun = tuple[Sequence[int], Collection[int], int]
"""How many samples each shard has given, which have given all, the lane of the first worker."""


class Taken(NamedTuple):
    """A sample, the number of its shard, how many that has given with it, and who took it."""

    sample: Any
    shard: int
    given: int
    lane: Lane


class ShardedStream(IterableDataset[Any]):
    """A stream over shards: files, keys of an object store, whatever `read` makes samples of.

    Whole shards are dealt out to the ranks and their workers. A checkpoint holds the number of
    samples that each shard has given, so a run can continue on other numbers of ranks and workers
    in mid-epoch, and each sample of the epoch comes once.

    With `shuffle_buffer`, each epoch has another order of shards. A worker keeps `open_shards` of
    them open and takes each sample from one of these at random. Each open shard is shuffled in
    blocks; together, the blocks are the buffer.

    >>> stream = ShardedStream([0, 10, 20], lambda shard: range(shard, shard + 3))
    >>> list(stream)
    [0, 1, 2, 10, 11, 12, 20, 21, 22]
    """

    epoch: int = 0
    has_start: bool = False
    begun: Begun | None = None
    """Set in the copy that an engine reads, which gives `Taken` samples."""

    def __init__(
        self,
        shards: Iterable[Any],
        read: Callable[..., Iterable[Any]],
        *,
        shuffle_buffer: int = 0,
        open_shards: int = 4,
        seed: int = 0,
    ) -> None:
        """Store the shards.

        Args:
            shards: The shards, in the same order on all ranks.
            read: Gives the samples of one shard, the same ones each time. If it has a parameter
                `start`, it skips this many samples; else a resume reads and drops them.
            shuffle_buffer: How many samples each worker holds to shuffle them; 0 for the shards and
                samples in their order, for evaluation.
            open_shards: How many shards each worker reads at once, if it shuffles.
            seed: The seed of the order and of what `read` draws at random, in each epoch anew.

        Raises:
            TypeError: `read` is not a function, or a number is not a whole one.
            ValueError: A rank would have no shard, or a number is too small.
        """
        if not callable(read):
            raise TypeError(f"ShardedStream(read={read!r}): needs a function of one shard")
        shuffle_buffer = whole_number("shuffle_buffer", shuffle_buffer)
        open_shards = whole_number("open_shards", open_shards, 1)
        self.shards: list[Any] = list(shards)
        self.read = read
        self.seed: int = whole_seed(seed)
        self.shuffle_buffer = shuffle_buffer
        self.open_shards: int = open_shards if shuffle_buffer else 1
        self.block: int = max(1, shuffle_buffer // open_shards) if shuffle_buffer else IN_ORDER
        """How many samples of a shard are read, and shuffled, together."""
        self.at_start: Begun = [0] * len(self.shards), (), 0
        self.deal_to(ranks.data_world_size(), ranks.data_rank())
        with suppress(ValueError):  # of a function in C
            self.has_start = "start" in inspect.signature(read).parameters

    def __repr__(self) -> str:
        """What decides on the order, with a checksum of the names of the shards."""
        kinds = str | int | PurePath
        names = [PurePath(str(e)).name if isinstance(e, kinds) else "" for e in self.shards]
        settings = f"{self.shuffle_buffer}, open_shards={self.open_shards}, seed={self.seed}"
        named = f"{len(names)} shards, names {crc32(repr(names).encode()):08x}"
        return f"ShardedStream({named}, shuffle_buffer={settings})"

    def deal_to(self, num_replicas: int, rank: int) -> None:
        """Take the part of one of so many ranks; an engine calls it with those of its run."""
        self.num_replicas: int = num_replicas
        self.rank: int = rank
        if len(self.shards) < num_replicas:
            raise ValueError(
                f"ShardedStream got {len(self.shards)} shards for {num_replicas} ranks: needs one "
                "for each at least, and better many. Write the data in more shards, or let "
                "read(shard) give a part of a file"
            )

    def set_epoch(self, epoch: int) -> None:
        """Draw another order for this epoch, counted from 0; the engine calls it."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        info, (given, finished, first) = get_worker_info(), self.begun or self.at_start
        number, lanes = (0, 1) if info is None else (info.id, info.num_workers)
        taken = Lane(self, (number + first) % lanes, lanes).taken(given, finished)
        return (each.sample for each in taken) if self.begun is None else taken

    def order(self) -> list[int]:
        """The numbers of the shards of this rank, in the order of this epoch."""
        return self.permuted(len(self.shards))[self.rank :: self.num_replicas]

    def permuted(self, count: int, *key: int) -> list[int]:
        """The numbers up to `count`, if this shuffles in an order drawn for the epoch and key."""
        if not self.shuffle_buffer:
            return list(range(count))
        generator = torch.Generator().manual_seed(seed_of(self.seed, self.epoch, *key))
        return torch.randperm(count, generator=generator).tolist()


class Lane:
    """The samples of one worker of a rank.

    What comes next follows from the numbers of samples that the shards have given, so that these
    are the whole position.
    """

    def __init__(self, stream: ShardedStream, number: int, lanes: int) -> None:
        self.stream: ShardedStream = stream
        self.number: int = number
        self.own: list[int] = stream.order()[number::lanes]
        self.finished: list[int] = []
        """Shards that have ended since the latest batch was made."""

    def taken(self, given: Sequence[int], finished: Collection[int]) -> Iterator[Taken]:
        """The samples that are left, each from one of the open shards at random."""
        stream, number = self.stream, sum(given[shard] for shard in self.own)
        key = (stream.seed, stream.epoch, stream.rank, self.number)
        waiting = (shard for shard in self.own if shard not in finished)
        opened: list[Iterator[Taken]] = []
        heads: list[Taken] = []
        while True:
            while len(heads) < stream.open_shards and (shard := next(waiting, None)) is not None:
                samples = self._samples(shard, given[shard])
                if (head := next(samples, None)) is None:
                    self.finished.append(shard)
                else:
                    opened.append(samples)
                    heads.append(head)
            if not heads:
                return
            place = seed_of(*key, number) % len(heads) if len(heads) > 1 else 0
            number += 1
            yield heads[place]
            if (head := next(opened[place], None)) is None:
                self.finished.append(heads[place].shard)
                del opened[place], heads[place]
            else:
                heads[place] = head

    def _samples(self, shard: int, given: int) -> Iterator[Taken]:
        """The samples of a shard behind those that are given, in blocks, which are shuffled."""
        stream, size = self.stream, self.stream.block
        name, block = stream.shards[shard], given // size if stream.has_start else 0
        with self._reading(shard, -1):
            start = {"start": block * size} if stream.has_start else {}
            samples = iter(stream.read(name, **start))
        while True:
            with self._reading(shard, block):
                found = list(islice(samples, size))
            begin = block * size
            skipped = min(max(0, given - begin), size)
            if len(found) < skipped:
                raise ValueError(
                    f"the shard {name!r} has fewer samples than the {given} that it gave before "
                    "the run was left: read(shard) has to give the same ones each time"
                )
            order = stream.permuted(len(found), shard, block)
            for at in range(skipped, len(found)):
                yield Taken(found[order[at]], shard, begin + at + 1, self)
            if len(found) < size:
                return
            block += 1

    @contextmanager
    def _reading(self, shard: int, block: int) -> Generator[None]:
        """Let `read` draw numbers of this block, and not deal samples out to workers once more."""
        stream, info = self.stream, get_worker_info()
        before = capture_generators() if info is None else None
        seed_all(seed_of(stream.seed, stream.epoch, shard, block))
        WORKER._worker_info = None
        try:
            yield
        except Exception as error:
            error.add_note(f"while reading the shard {stream.shards[shard]!r}")
            raise
        finally:
            WORKER._worker_info = info
            if before is not None:
                restore_generators(before)

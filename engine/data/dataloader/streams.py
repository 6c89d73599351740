"""A `DataLoader` over a `ShardedStream`, which continues where each shard was left."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ... import ranks
from ...state import Position, capture_generators, restore_generators, seed_all, seed_of
from ..loaders import ShardedStream, Taken
from ..order import Order
from .loader import IndexedLoader, Loader
from .workers import named


def source_of_loader(data: DataLoader[Any], *, each_once: bool) -> Loader:
    """The source that reads a loader: by indices, if its data set has indices."""
    if not isinstance(data.dataset, IterableDataset):
        return IndexedLoader(data, each_once=each_once)
    wrapped = getattr(data.dataset, "dataset", None)
    if isinstance(wrapped, ShardedStream) and type(data.dataset).__name__ == "IterableDatasetShard":
        raise ValueError(
            "a ShardedStream deals its shards out to the ranks, and accelerate would deal each "
            "rank's samples out once more: give the loader as it was before prepare()"
        )
    is_own = getattr(type(data.dataset), "__iter__", None) is ShardedStream.__iter__
    return ShardedLoader(data) if is_own else Loader(data)


class ShardedLoader(Loader):
    """A `DataLoader` over a `ShardedStream`.

    The batches come with the counts of their shards; the position is what the run has been given,
    whatever the workers have read ahead.
    """

    seeds_workers = fills_up = True
    told: dict[str, Any]
    samples: Any

    def __init__(self, data: DataLoader[Any]) -> None:
        if data.persistent_workers:
            raise ValueError(
                "DataLoader(ShardedStream(...), persistent_workers=True): workers that outlive an "
                "epoch cannot be told of the next one; leave persistent_workers out"
            )
        self.stream: ShardedStream = copy.copy(data.dataset)  # type: ignore[assignment]
        if ranks.data_world_size() > 1:  # the stream may be older than the process group
            self.stream.deal_to(ranks.data_world_size(), ranks.data_rank())
        order = Order(fits_any_ranks=True)
        order.name, order.ranks = repr(self.stream), self.stream.num_replicas
        order.batch, order.splits_anywhere = (data.batch_size or 1) * order.ranks, True
        super().__init__(data, order)
        self.is_known: bool = True
        vars(self.copy)["dataset"] = self.stream

    def open(self, position: Position, consumed: int) -> Iterator[Any]:
        """Begin a pass, or continue one where its shards were left by any ranks and workers."""
        self.stream.epoch = self.data.dataset.epoch  # type: ignore[attr-defined]
        self.told = {
            "epoch": self.stream.epoch,
            "given": torch.zeros(len(self.stream.shards), dtype=torch.int64),
            "finished": torch.zeros(len(self.stream.shards), dtype=torch.bool),
            "dealt": [self.order.ranks, self.data.num_workers],
            "lane": 0,
        }
        if consumed:
            self._go_on(position)
        finished = {*self.told["finished"].nonzero().flatten().tolist()}
        self.stream.begun = self.told["given"].tolist(), finished, self.told["lane"]
        batches = self._begin()
        return self._noted(named(batches) if self.data.num_workers else batches)

    def state(self) -> Any:
        """The position of each shard, as far as this rank knows it."""
        return copy.deepcopy(self.told)

    def sizes(self) -> dict[str, int]:
        """None: the shards may be dealt out in another way."""
        return {}

    def filling(self) -> Any:
        """A batch that counts for nothing, for a rank whose shards have given all: its first."""
        fresh, size = copy.copy(self.stream), self.data.batch_size
        fresh.begun = fresh.at_start
        if not (taken := [*islice(fresh, size or 1)]):
            raise ValueError(
                f"the shards of rank {ranks.rank()} have no sample, and it has to take part in the "
                "steps of the other ranks: leave empty shards out"
            )
        before = capture_generators()  # a resumed run makes this batch once more
        seed_all(fresh.seed)
        batch, _ = WithNote(self.data.collate_fn)(taken if size else taken[0])
        restore_generators(before)
        return batch

    def _go_on(self, position: Position) -> None:
        """Continue from what all ranks have told when the run was left."""
        told = position.data_states or [position.data_state]
        is_known = all(isinstance(each, dict) and "given" in each for each in told)
        if not is_known or len({each["epoch"] for each in told}) > 1:
            what = "its ranks in different passes (uneven='ignore')" if is_known else "other data"
            raise ValueError(
                f"cannot carry on in the middle of an epoch: the run was left with {what}. Go on "
                f"on {len(told)} ranks with the data that it was left with; between two epochs "
                "both may change"
            )
        for name in ("given", "finished"):
            self.told[name] = torch.stack([each[name] for each in told]).amax(0)
        if told[0]["dealt"] == self.told["dealt"]:
            self.told["lane"] = told[0]["lane"]
        position.data_states = None

    def _renew(self) -> frozenset[int]:
        caught = super()._renew()
        self.copy.collate_fn = WithNote(self.data.collate_fn)
        return caught

    def _noted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch, (lane, self.samples, given, finished) in batches:
            for shard, count in given.items():
                self.told["given"][shard] = count
            self.told["finished"][finished] = True
            self.told["lane"] = (lane + 1) % max(1, self.data.num_workers)
            yield batch


@dataclass(frozen=True)
class WithNote:
    """Collates samples of a stream, with a note on the shards that they are of."""

    collate: Callable[[Any], Any]

    def __call__(self, taken: Taken | list[Taken]) -> tuple[Any, tuple[Any, ...]]:
        """Make the batch and its note."""
        one, each = (taken, [taken]) if isinstance(taken, Taken) else (None, taken)
        lane, first = each[0].lane, each[0]
        if get_worker_info() is not None:
            seed_all(seed_of(lane.stream.seed, lane.stream.epoch, first.shard, -1 - first.given))
        finished, lane.finished = lane.finished, []
        note = (lane.number, len(each), {e.shard: e.given for e in each}, finished)
        return self.collate(one.sample if one else [e.sample for e in each]), note

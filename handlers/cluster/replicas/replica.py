"""This process as a replica of a run, or as a rank of one: whom it works with, in each step.

The first rank of a replica talks with the lighthouse, and tells the other ranks who takes part.
Then each rank works with the rank of the same number in every other replica: it adds up its own
part of the gradients with them. What fails for one rank fails for all ranks of its replica.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce

import torch
from torch import Tensor

from ....engine import ranks
from ....engine.modules import locals_of
from ..transfer import Lost, Parts, Shelf, received_from
from .crew import Crew, Member, Point, Quorum, address_towards
from .shards import ShardedBatch, ShardResult, trained_by
from .sums import Group, Node, dealt, sum_over

logger: logging.Logger = logging.getLogger("camshaft")

MOST = 20
"""The most attempts in a row to work with the others."""
LAST = 10.0
"""The most seconds that the first replica waits for the others at the end of a run."""
Result = tuple[Tensor, dict[int, ShardResult]]
"""The sums of the gradients over all shards, and what there is to know of each shard."""


class Replica:
    """The connections of this process during one run."""

    def __init__(self, lighthouse: str, shards: int, address: str | None, timeout: float) -> None:
        """Connect to the lighthouse.

        Raises:
            ConnectionError: There is none.
        """
        self._timeout = timeout
        with ranks.on_all_ranks("reach the lighthouse"):
            address = address or address_towards(lighthouse)
            self._crew = Crew(lighthouse, timeout) if ranks.rank() == 0 else None
        self._group = Group(address, timeout)
        self._shelf = Shelf(address, timeout)
        places, stores = zip(*ranks.gathered((self._shelf.place, self._group.store)), strict=True)
        name = ranks.from_first("" if self._crew is None else self._crew.id)
        self._own = Member(name, places, stores, shards)
        self.now: Quorum | None = None
        """Who computes the next step, or the step under way."""
        self.is_ready: bool = False
        """True if `now` is for a step that has not begun."""

    @property
    def is_first(self) -> bool:
        """True if this replica writes the files of the run."""
        return self.now is not None and self.now.working[0].id == self._own.id

    @property
    def gives(self) -> bool:
        """True if this replica gives the run to new ones."""
        source = None if self.now is None else self.now.source
        return source is not None and source.id == self._own.id

    @property
    def others(self) -> int:
        """How many other replicas there are."""
        return 0 if self.now is None else len(self.now.working) - 1

    def meet(self, point: Point, iteration: int) -> Quorum:
        """Agree with the others on who computes the next step.

        Raises:
            ConnectionError: The lighthouse has gone.
            RuntimeError: The others are further than this replica.
            ValueError: This replica has other settings than the first one.
        """
        self._own = replace(self._own, point=point, iteration=iteration)
        with ranks.on_all_ranks("meet the other replicas"):
            found = None if self._crew is None else self._crew.meet(self._own)
        now = self.now = ranks.from_first(found)
        assert now is not None  # the first rank has it
        behind = now.top - iteration
        if point != "new" and (behind > 1 or (behind and point == "commit")):
            raise RuntimeError(
                f"this replica has completed {iteration} iterations, and the others {now.top}: it "
                "was away for too long. Start it again: it then gets the run from them"
            )
        return now

    def connect(self) -> None:
        """Connect to those who compute the next step.

        Raises:
            Lost: One of them has gone.
        """
        assert self.now is not None
        now, working = self.now, self.now.working
        if now.key == self._group.key:  # all ranks are connected, or none
            return
        with self._agreed():
            store = working[0].stores[ranks.rank()]
            self._group.connect(now.key, store, now.index, len(working))

    def failed(self, error: Lost) -> None:
        """Note that a replica has gone, so that the next quorum gives all new connections."""
        logger.warning("%s; tried again with the replicas that are left", error)
        self._own = replace(self._own, failures=self._own.failures + 1)

    def begin(self) -> dict[str, bytearray] | None:
        """The run of the others, to join it; None if there is none, and this replica begins one.

        Of a replica of several ranks, these are the files that this rank brings to its machine.

        Raises:
            Lost: The replica that gives it has gone.
        """
        now = self.meet("new", 0)
        if not now.running and now.new[0].id == self._own.id:
            self.now = None
            return None
        if now.source is None:
            raise Lost("the run cannot be joined now")
        self.connect()
        files = dict[str, bytearray]()
        with self._agreed():  # the ranks of a machine get all parts of the run together
            for place in now.source.places[ranks.local_rank() :: ranks.local_world_size()]:
                files |= received_from(place, ("run", now.top), self._timeout)
        self._own = replace(self._own, since=now.top + 1)
        self.is_ready = True
        return files

    def offer_run(self, iteration: int, files: Parts) -> None:
        """Give the run to new replicas."""
        self._shelf.offer(("run", iteration), lambda: files)

    def keep_run(self) -> None:
        """Offer the run no longer."""
        self._shelf.withdraw("run")

    def compute(self, shards: ShardedBatch) -> Result:
        """The sums over all shards of a batch, of which this replica computes some.

        Raises:
            Lost: Another replica has gone.
            RuntimeError: Another replica is not in the same step of the same run.
        """
        group, count = self._group, shards.count
        sums = {
            node: sum_over(node, shards.leaf) for node in dealt(count, group.index, group.count)
        }
        with self._agreed():
            return self._summed(shards, sums)

    def _summed(self, shards: ShardedBatch, sums: dict[Node, Tensor]) -> Result:
        """The sums of this replica and of all others together."""
        group, parameters = self._group, locals_of(trained_by(shards.update))
        shapes = [[*each.shape] for each in parameters]
        said = [shards.state.iteration, shards.edges, shapes, shards.checksum]
        letters = group.letters([said, list(shards.letters.items())])
        if odd := [each for each, _ in letters if each != said]:
            raise RuntimeError(
                "the replicas compute different steps: iteration, edges of the shards, shapes of "
                "the parameters and checksum of the batch's first, middle and last sample are "
                f"{said} here and {odd[0]} there. Give all of them the same script and the same "
                "data, in the same order"
            )
        length = sum(each.numel() for each in parameters)
        dtype = reduce(torch.promote_types, (each.dtype for each in parameters))
        total = group.total(sums, shards.count, length, dtype)
        return total, {shard: each for _, rows in letters for shard, each in rows}

    def catch_up(self, iteration: int) -> Result | None:
        """After a failure: the result of this step from a replica that has it; else None.

        Raises:
            Lost: Another replica has gone.
        """
        now = self.meet("inside", iteration - 1)
        self.connect()
        if now.top < iteration:
            return None
        ahead = next(each for each in now.running if each.iteration == iteration)
        with self._agreed():
            place = ahead.places[ranks.rank()]
            found = received_from(place, ("step", iteration), self._timeout)
        self.is_ready = True  # this quorum was for the next step
        dtype = getattr(torch, bytes(found["dtype"]).decode())
        letters = {int(shard): each for shard, each in json.loads(found["letters"])}
        total = found["total"]  # a rank may have no part of any parameter
        return torch.frombuffer(total, dtype=dtype) if total else torch.empty(
            0, dtype=dtype
        ), letters

    def offer_step(self, iteration: int, result: Result) -> None:
        """Give the result of a step to replicas that have failed to get it."""
        self._shelf.offer(("step", iteration), partial(_step_as_bytes, *result))

    def end(self) -> None:
        """Wait until the first replica has written all of the run.

        Raises:
            Lost: It has gone before.
        """
        if not self.others or self.now is None:
            return
        with self._agreed():
            if self.is_first:
                self._shelf.offer(("end", 0), dict)
                self._shelf.await_served(("end", 0), self.others, LAST)
            else:
                received_from(self.now.working[0].places[ranks.rank()], ("end", 0), None)

    def close(self) -> None:
        """Leave the others."""
        self._group.abort()
        if self._crew is not None:
            self._crew.close()
        self._shelf.close()

    @contextmanager
    def _agreed(self) -> Generator[None]:
        """Raise `Lost` on all ranks of this replica, if one of them raises it inside."""
        lost: Lost | None = None
        try:
            yield
        except Lost as error:
            self._group.abort()  # before it waits, so that no rank of another replica waits for it
            lost = error
        if ranks.any_rank(lost is not None):
            self._group.abort()
            raise lost or Lost("another rank of this replica has lost a replica")


def _step_as_bytes(total: Tensor, letters: dict[int, ShardResult]) -> Parts:
    return {
        "total": total.view(torch.uint8).numpy().tobytes(),
        "letters": json.dumps(list(letters.items())).encode(),
        "dtype": str(total.dtype).removeprefix("torch.").encode(),
    }

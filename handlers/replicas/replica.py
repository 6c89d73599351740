"""This process as one replica of a run: whom it works with, and how a step is computed."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from functools import partial, reduce

import torch
from torch import Tensor

from .crew import Crew, Member, Point, Quorum
from .shards import Letter, ShardedBatch, trained_by
from .sums import Group, dealt, sum_over
from .transfer import Lost, Parts, Shelf, received_from

logger: logging.Logger = logging.getLogger("camshaft")

MOST = 20
"""The most attempts in a row to work with the others."""
LAST = 10.0
"""The most seconds that the first replica waits for the others at the end of a run."""
Result = tuple[Tensor, dict[int, Letter]]
"""The sums of the gradients over all shards, and what there is to know of each shard."""


class Replica:
    """The connections of this process during one run."""

    def __init__(self, lighthouse: str, shards: int, address: str | None, timeout: float) -> None:
        """Connect to the lighthouse.

        Raises:
            ConnectionError: There is none.
        """
        self._timeout = timeout
        self._crew = Crew(lighthouse, address, timeout)
        self._group = Group(self._crew.address, timeout)
        self._shelf = Shelf(self._crew.address, timeout)
        self._own = Member(self._crew.id, self._shelf.place, self._group.store, shards)
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
            ValueError: Another replica has other settings.
        """
        self._own = replace(self._own, point=point, iteration=iteration)
        now = self.now = self._crew.meet(self._own)
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
        working = self.now.working
        self._group.connect(self.now.key, working[0].store, self.now.index, len(working))

    def failed(self, error: Lost) -> None:
        """Disconnect, since a replica has gone; the next quorum gives all new connections."""
        logger.warning("%s; tried again with the replicas that are left", error)
        self._group.abort()
        self._own = replace(self._own, failures=self._own.failures + 1)

    def begin(self) -> dict[str, bytearray] | None:
        """The run of the others, to join it; None if there is none, and this replica begins one.

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
        files = received_from(now.source.place, ("run", now.top), self._timeout)
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
        parameters = trained_by(shards.update)
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
        total = group.total(sums, count, length, dtype)
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
        found = received_from(ahead.place, ("step", iteration), self._timeout)
        self.is_ready = True  # this quorum was for the next step
        dtype = getattr(torch, bytes(found["dtype"]).decode())
        letters = {int(shard): each for shard, each in json.loads(found["letters"])}
        return torch.frombuffer(found["total"], dtype=dtype), letters

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
        if self.is_first:
            self._shelf.offer(("end", 0), dict)
            self._shelf.await_served(("end", 0), self.others, LAST)
        else:
            received_from(self.now.working[0].place, ("end", 0), None)

    def close(self) -> None:
        """Leave the others."""
        self._group.abort()
        self._crew.close()
        self._shelf.close()


def _step_as_bytes(total: Tensor, letters: dict[int, Letter]) -> Parts:
    return {
        "total": total.view(torch.uint8).numpy().tobytes(),
        "letters": json.dumps(list(letters.items())).encode(),
        "dtype": str(total.dtype).removeprefix("torch.").encode(),
    }

"""Batches: one epoch after the other, from where a run was left."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic

from .position import Position
from .rng import capture, generators_of, restore
from .state import Batch, State

END = object()


class Feed(Generic[Batch]):
    """The batches of one epoch after the other, from the position of a state on.

    An epoch is one pass over the data, or `epoch_length` batches of an endless row of passes.
    """

    def __init__(
        self, data: Iterable[Batch], state: State[Batch, Any], epoch_length: int | None
    ) -> None:
        """Put the generators back to where the run was left, if this state carries one on."""
        self.data = data
        self.epoch_length = epoch_length
        self._row = None if epoch_length is None else self._passes(state)
        self._pass: Iterator[Any] = iter(())
        position = state.position
        if position is not None and position.left is not None:
            if len(generators_of(data)) != len(position.left.generators) and not state.in_epoch:
                position.left.generators = [each.get_state() for each in generators_of(data)]
            restore(position.left, data)  # other data between epochs keeps its own generators
            position.left = None

    def length(self) -> int | None:
        """The batches of an epoch, if that is known."""
        if self.epoch_length is not None:
            return self.epoch_length
        try:
            return len(self.data)  # type: ignore[arg-type]  # the except clause is for those
        except (TypeError, NotImplementedError):
            return None

    def epoch(self, state: State[Batch, Any]) -> Iterator[Batch]:
        """The batches that are left of this epoch, and of `max_iterations`."""
        batches: Iterator[Batch]
        if self._row is not None and self.epoch_length is not None:
            batches = islice(self._row, self.epoch_length - state.iteration_in_epoch)
        else:
            batches = self._reopen(state) if self._is_open(state) else self._begin(state)
            self._pass = batches
        if state.max_iterations is not None:
            batches = islice(batches, max(0, state.max_iterations - state.iteration))
        return batches

    def is_used_up(self) -> bool:
        """True if no batch follows in this epoch; where its length is the data's, it is asked.

        Asking matters besides: samplers with a generator of their own draw from it at the end.
        """
        return self._row is not None or next(self._pass, END) is END

    def check(self, state: State[Batch, Any]) -> None:
        """Refuse a pass that is over without having given a batch.

        Raises:
            ValueError: The data is empty, or an iterator that an earlier pass has used up.
        """
        position = state.position
        if position is None or state.iteration > position.began:
            return
        if isinstance(self.data, Iterator) and position.number > 1:
            raise ValueError(
                f"epoch {state.epoch} found no batch: the data is an iterator that an earlier "
                "epoch has used up. Pass something that can begin again (a DataLoader, a list), "
                "or give epoch_length= to cut one long iterator into epochs"
            )
        raise ValueError(
            f"epoch {state.epoch} found no batch: the data is empty. If it is a DataLoader, look "
            "at its batch_size, drop_last and sampler"
        )

    def leave(self, state: State[Batch, Any]) -> None:
        """Remember the generators as they are, so that the run can be carried on exactly."""
        now = capture(self.data)
        if state.position is None:
            state.position = Position(0, state.iteration, now)
        state.position.left = now

    def _is_open(self, state: State[Batch, Any]) -> bool:
        """True if this epoch's pass has begun, even if the run was left before its first batch."""
        position = state.position
        begun = position is not None and position.number > 0 and position.began == state.iteration
        return begun or state.iteration_in_epoch > 0

    def _passes(self, state: State[Batch, Any]) -> Iterator[Batch]:
        if state.position is not None and state.position.number > 0:
            yield from self._reopen(state)
        while True:
            yield from self._begin(state)
            self.check(state)

    def _begin(self, state: State[Batch, Any]) -> Iterator[Batch]:
        number = 1 if state.position is None else state.position.number + 1
        source = self.data if isinstance(self.data, Iterator) else None
        if state.training:  # an evaluation may share a data set with the training around it
            _set_epoch(self.data, number)
        state.position = Position(number, state.iteration, capture(self.data), source=source)
        return iterate(self.data)

    def _reopen(self, state: State[Batch, Any]) -> Iterator[Batch]:
        position = state.position
        assert position is not None
        if position.source is not None and position.source is self.data:
            return iter(self.data)
        now = capture(self.data)
        restore(position.rng, self.data)
        _set_epoch(self.data, position.number)
        batches = iterate(self.data)
        consumed = state.iteration - position.began
        if (found := sum(1 for _ in islice(batches, consumed))) < consumed:
            raise ValueError(
                f"cannot carry on at batch {consumed + 1} of epoch {state.epoch}: the data ended "
                f"after {found} batches. Pass the data that the run was left with"
            )
        restore(now, self.data)
        return batches


@dataclass(frozen=True)
class Head(Generic[Batch]):
    """The first batches of some data, at most `length`."""

    data: Iterable[Batch]
    length: int

    def __iter__(self) -> Iterator[Batch]:
        """Begin the data."""
        return islice(iter(self.data), self.length)


def iterate(data: Iterable[Batch]) -> Iterator[Batch]:
    """Begin a pass; a loader draws as much for it whether its workers are new or persistent.

    A loader draws a seed for new workers before the sampler draws its order, and none for those
    that are there already; so a resumed process, whose workers are new, would draw another order.
    """
    if getattr(data, "_iterator", None) is not None:
        torch = sys.modules["torch"]
        torch.empty((), dtype=torch.int64).random_(generator=getattr(data, "generator", None))
    return iter(data)


def _set_epoch(data: object, number: int) -> None:
    """Tell samplers and data sets that shuffle by epoch which one begins; they count from 0."""
    batch_sampler = getattr(data, "batch_sampler", None)
    parts: list[Any] = [data, getattr(data, "dataset", None), getattr(data, "sampler", None)]
    parts.append(batch_sampler)
    parts.append(getattr(batch_sampler, "sampler", None))
    told: set[int] = set()
    for part in parts:
        if hasattr(part, "set_epoch") and id(part) not in told:
            told.add(id(part))
            part.set_epoch(number - 1)

"""The batches of a run: epoch after epoch, from where an earlier part of the run stopped."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Generic

from ..state import (
    Batch,
    Position,
    Rng,
    State,
    capture_generators,
    generators_of,
    restore_generators,
    seed_from,
    under_way,
)
from .sources import Source, Stateful

logger = logging.getLogger("camshaft")

END = object()


class Feed(Generic[Batch]):
    """Gives the batches of each epoch, starting at the position in the state.

    An epoch is one pass over the data, or `epoch_length` batches of endlessly repeated passes.
    """

    def __init__(
        self,
        data: Iterable[Batch],
        state: State[Batch, Any],
        epoch_length: int | None,
    ) -> None:
        """Choose how to read the data; `take_up` goes to the position in the state.

        The run's `pass_limit` ends each pass early, and the next one begins the data again;
        `epoch_length` cuts endlessly repeated passes into epochs.
        """
        self.data = data
        self.most = state.control.pass_limit
        self.source = source_of(data, each_once=not state.training)
        self.epoch_length = epoch_length
        self._repeated = None if epoch_length is None else self._passes(state)
        self._pass: Iterator[Any] = iter(())
        self._doubted = False
        self._is_taken_up = False
        self._has_opened = False

    def take_up(self, state: State[Batch, Any]) -> None:
        """Restore the random generators, if this state continues a run."""
        self._is_taken_up = True
        position = state.control.position
        if position is not None and position.left is not None:
            if not state.control.in_epoch:
                self._settle(position, position.left)
            restore_generators(position.left, self.data)
            position.left = None

    def length(self) -> int | None:
        """The number of batches of an epoch, or None if it is unknown."""
        return length_of_epoch(self.source.length(), self.epoch_length, self.most)

    def epoch(self, state: State[Batch, Any]) -> Iterator[Batch]:
        """The remaining batches of this epoch, at most up to `max_iterations`."""
        batches: Iterator[Batch]
        if self._repeated is not None and self.epoch_length is not None:
            batches = islice(self._repeated, self.epoch_length - state.iteration_in_epoch)
        else:
            batches = self._reopen(state) if self._is_open(state) else self._begin(state)
            if self.most is not None:
                batches = islice(batches, self.most - state.iteration_in_epoch)
            self._pass = batches
        if state.max_iterations is not None:
            batches = islice(batches, max(0, state.max_iterations - state.iteration))
        return batches

    def is_used_up(self) -> bool:
        """True if no batch follows in this epoch.

        Where a pass is an epoch, this asks the iterator for one more batch. It has to: a sampler
        with its own generator draws from it once more at its end.
        """
        return self._repeated is not None or next(self._pass, END) is END

    def check(self, state: State[Batch, Any]) -> None:
        """Refuse a pass that gave no batch."""
        position = state.control.position
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
        """Note the state of the random generators, so that the run can continue exactly."""
        if not self._is_taken_up:  # STARTED has failed, and nothing was read
            return
        now = capture_generators(self.data)
        if state.control.position is None:
            state.control.position = Position(0, state.iteration, now, seed_from(now))
        elif state.control.position.number and self._has_opened:
            # Before, as after the last batch of a virtual epoch, the data is not at the position.
            state.control.position.told = self.source.state()
        state.control.position.left = now

    def warn_of_doubts(self) -> None:
        """Warn once a run of what a resumed run may not repeat exactly."""
        if not self._doubted:
            self._doubted = True
            for doubt in self.source.doubts():
                logger.warning("a resumed run may not be the same to the last bit: %s", doubt)

    def close(self) -> None:
        """Drop the iterators, so that the workers end with the run."""
        self._repeated, self._pass = None, iter(())  # breaks the reference cycle with the generator
        self.source.close()

    def _is_open(self, state: State[Batch, Any]) -> bool:
        """True if this epoch's pass has begun, even if the run stopped before its first batch."""
        position = state.control.position
        begun = position is not None and position.number > 0 and position.began == state.iteration
        return begun or state.iteration_in_epoch > 0

    def _passes(self, state: State[Batch, Any]) -> Iterator[Batch]:
        if state.control.position is not None and state.control.position.number > 0:
            yield from self._reopen(state)
        while True:
            yield from self._begin(state)
            self.check(state)

    def _begin(self, state: State[Batch, Any]) -> Iterator[Batch]:
        number = 1 if state.control.position is None else state.control.position.number + 1
        if state.training:  # an evaluation may read the data set of the training around it
            _set_epoch(self.data, number)
        rng = capture_generators(self.data)
        seed = seed_from(rng) if state.control.position is None else state.control.position.seed
        position = state.control.position = Position(number, state.iteration, rng, seed)
        position.sizes = self.source.sizes()
        position.source = self.data if isinstance(self.data, Iterator) else None
        self._has_opened = True
        return self.source.open(position, 0)

    def _reopen(self, state: State[Batch, Any]) -> Iterator[Batch]:
        position = state.control.position
        assert position is not None
        if position.source is not None and position.source is self.data:
            return iter(self.data)
        now = capture_generators(self.data)
        restore_generators(position.rng, self.data)
        _set_epoch(self.data, position.number)
        self._check_sizes(position, state.epoch)
        batches = self.source.open(position, state.iteration - position.began)
        self._has_opened = True
        restore_generators(now, self.data)
        return batches

    def _settle(self, position: Position, left: Rng) -> None:
        """Between two epochs, when the data may change: keep the generators of new data."""
        if len(generators_of(self.data)) != len(left.generators):
            left.generators = capture_generators(self.data).generators
        if position.told is not None:
            self.source.settle(position.told)

    def _check_sizes(self, position: Position, epoch: int) -> None:
        now = self.source.sizes()
        changed = [
            f"{name} {was} -> {now.get(name)}"
            for name, was in position.sizes.items()
            if now.get(name) != was
        ]
        if changed:
            raise ValueError(
                f"cannot carry on in the middle of epoch {epoch} with other data: "
                f"{', '.join(changed)}. Pass the data that the run was left with; between two "
                "epochs it may change"
            )


def source_of(data: Iterable[Any], each_once: bool = False) -> Source[Any]:
    """Choose how this data resumes: by its own state, by skipping indices, or by reading again.

    With `each_once`, the samples that a `DistributedSampler` repeats to pad the ranks are left out.
    """
    if callable(getattr(data, "state_dict", None)) and callable(
        getattr(data, "load_state_dict", None)
    ):
        return Stateful(data)
    if "torch.utils.data" in sys.modules:
        from .loader import Loader, is_plain

        if is_plain(data):
            return Loader(data, each_once)
    return Source(data)


def length_of_epoch(length: int | None, epoch_length: int | None, most: int | None) -> int | None:
    """The number of batches of an epoch over data of this length, or None if it is unknown."""
    if epoch_length is not None:
        return epoch_length
    return length if most is None or length is None else min(length, most)


def is_read(data: object) -> bool:
    """True if a run that is under way, in this thread, reads this data."""
    state = under_way.get()
    while state is not None and state.control.data is not data:
        state = state.control.outer
    return state is not None


def _set_epoch(data: object, number: int) -> None:
    """Call `set_epoch` of samplers and data sets that shuffle by epoch; they count from 0."""
    batch_sampler = getattr(data, "batch_sampler", None)
    parts: list[Any] = [data, getattr(data, "dataset", None), getattr(data, "sampler", None)]
    parts.append(batch_sampler)
    parts.append(getattr(batch_sampler, "sampler", None))
    told: set[int] = set()
    for part in parts:
        if hasattr(part, "set_epoch") and id(part) not in told:
            told.add(id(part))
            part.set_epoch(number - 1)

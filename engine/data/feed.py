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
from .in_step import InStep
from .other_ranks import check_same_ranks, go_on, is_of_other_ranks
from .prepared import Prepared, inside
from .sources import (
    END,
    Source,
    Stateful,
    length_of,
    length_of_epoch,
    read_again,
    rest_of,
    shortest,
    tell_of_repeats,
)

logger = logging.getLogger("camshaft")


class Feed(Generic[Batch]):
    """Gives the batches of each epoch, starting at the position in the state.

    An epoch is one pass over the data, or `epoch_length` batches of endlessly repeated passes.
    """

    def __init__(
        self,
        data: Iterable[Batch],
        state: State[Batch, Any],
        epoch_length: int | None,
        in_step: InStep | None = None,
    ) -> None:
        """Choose how to read the data; `take_up` goes to the position in the state.

        The run's `pass_limit` ends each pass early, and the next one begins the data again;
        `epoch_length` cuts endlessly repeated passes into epochs.
        """
        self.data = data
        self.most = state.control.pass_limit
        self.source = source_of(data, each_once=not state.training)
        self.epoch_length = epoch_length
        self.in_step = in_step or InStep()
        self.was_left = False
        """True if the feed itself ended the epoch early, because the run is to be left."""
        self._shared: int | None = None
        """The batches of an epoch, where another rank has fewer than this one."""
        self._repeated = None if epoch_length is None else self._passes(state)
        self._pass: Iterator[Any] = iter(())
        self._doubted = False
        self._is_taken_up = False
        self._has_opened = False

    def read_other(self, data: Iterable[Batch], state: State[Batch, Any]) -> None:
        """Read other data from the next pass on."""
        self.source.close()
        self.data, self.source = data, source_of(data, each_once=not state.training)
        state.control.data = data

    def take_up(self, state: State[Batch, Any]) -> None:
        """Restore the random generators, if this state continues a run."""
        position = state.control.position
        if position is not None and self._is_inside(position, state):
            position.used_up = position.at_end and is_of_other_ranks(position, self.source)
        if position is not None and self._is_inside(position, state):
            go_on(position, self.source, self._consumed(position, state), state.epoch)
        self._is_taken_up, state.share = True, 1.0
        if position is not None and position.left is not None:
            # Inside a pass, `_reopen` puts the data where it was; here no pass is opened again.
            if not state.control.in_epoch or position.used_up:
                self._settle(position, position.left)
            restore_generators(position.left, self.data)
            position.left = None

    def put_back(self, state: State[Batch, Any], rng: Rng | None = None) -> None:
        """Leave data that this process has not read, and generators, where the run left them.

        The generators stay as they are, or become those of `rng`. So a script that finds its run
        finished leaves the same as one that has just trained.
        """
        position = state.control.position
        rng = rng or capture_generators(self.data)
        if position is not None and position.number and not self._has_opened:
            tell_epoch(self.data, position.number)
            if position.told is not None:
                self.source.settle(position.told)
        restore_generators(rng, self.data)

    def length(self, state: State[Batch, Any]) -> int | None:
        """The number of batches of an epoch, or None if it is unknown; the same on all ranks."""
        position = state.control.position
        is_open = position is not None and state.control.in_epoch and self._is_open(state)
        length = self.source.length(position.dealing if position and is_open else None)
        own = length_of_epoch(length, self.epoch_length, self.most)
        agreed = self.in_step.agree(self.data, own)
        self._shared = None if agreed == own else agreed
        return agreed

    def epoch(self, state: State[Batch, Any]) -> Iterator[Batch]:
        """The remaining batches of this epoch, at most up to `max_iterations`."""
        batches: Iterator[Batch]
        most = shortest(self.epoch_length, self.most, self._shared)
        if self._repeated is not None:
            batches = self._repeated
        elif not self._is_open(state):
            batches = self._begin(state)
        else:
            batches = iter(()) if self.was_used_up(state) else self._reopen(state)
        if most is not None:
            batches = islice(batches, most - state.iteration_in_epoch)
        self._pass = batches
        batches = self.in_step.batches(batches, state)
        if state.max_iterations is not None:
            batches = islice(batches, max(0, state.max_iterations - state.iteration))
        return batches

    def note_end(self, state: State[Batch, Any]) -> None:
        """Note that all was read, since data of its own state is then at its next pass."""
        most = shortest(self.epoch_length, self.most, self._shared)
        is_cut = state.iteration_in_epoch == most or state.iteration == state.max_iterations
        if state.control.position is not None and self._repeated is None and not is_cut:
            state.control.position.used_up = True

    def was_used_up(self, state: State[Batch, Any]) -> bool:
        """True if the pass under way was read to its end, perhaps by an earlier process."""
        position = state.control.position
        return position is not None and position.used_up

    def is_used_up(self) -> bool:
        """True if no batch follows in this epoch.

        Where a pass is an epoch, this asks the iterator for one more batch. It has to: a sampler
        with its own generator draws from it once more at its end.
        """
        return self._repeated is not None or next(self._pass, END) is END

    def has_ended(self, state: State[Batch, Any]) -> bool:
        """True if no epoch can follow one that has read all: the data is an iterator, used up.

        After an epoch of a given length it is not known yet, nor of an iterator with an `__iter__`
        of its own, which may begin again, as loaders of old do; the next epoch finds no batch.
        """
        most = shortest(self.epoch_length, self.most)
        if not self.in_step.reads_once or self.in_step.may_begin_again:
            return False
        return most is None or state.iteration_in_epoch < most

    def found_nothing(self, state: State[Batch, Any]) -> bool:
        """True if the epoch had no batch, so that it has not begun."""
        return not state.iteration_in_epoch

    def check(self, state: State[Batch, Any]) -> None:
        """Refuse a pass that gave no batch, unless it is the end of an iterator."""
        position = state.control.position
        if position is None or state.iteration > position.began:
            return
        if position.number > 1 and self.in_step.reads_once:
            return
        found = f"epoch {state.epoch}" if state.training else "the evaluation"
        raise ValueError(f"{found} found no batch: {self._why_empty(position)}")

    def _why_empty(self, position: Position) -> str:
        if isinstance(self.data, Iterator):
            return (
                "the data is an iterator with nothing left, such as a generator that an earlier "
                "pass has used up. Pass something that can begin again (a DataLoader, a list)"
            )
        if position.number > 1:
            return (
                f"the {type(self.data).__name__} gave batches in an earlier epoch, and its "
                "__iter__ gives what is used up. Let __iter__ begin anew"
            )
        return (
            "the data is empty. If it is a DataLoader, look at its batch_size, drop_last and "
            "sampler" + ("; it may be that of another rank" if self.in_step.is_on else "")
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
            is_at_end = state.iteration_in_epoch == state.epoch_length and self._repeated is None
            state.control.position.at_end = is_at_end
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

    def next_number(self, earlier: Position | None) -> int:
        """The number of the pass that follows another one."""
        return 1 if earlier is None else earlier.number + 1

    def _is_open(self, state: State[Batch, Any]) -> bool:
        """True if this epoch's pass has begun, even if the run stopped before its first batch."""
        position = state.control.position
        begun = position is not None and position.number > 0 and position.began == state.iteration
        return begun or state.iteration_in_epoch > 0

    def _passes(self, state: State[Batch, Any]) -> Iterator[Batch]:
        if state.control.position is not None and state.control.position.number > 0:
            yield from self._reopen(state)
            if self._has_found_nothing(state):
                return
        while True:
            yield from self._begin(state)
            self.check(state)
            if self._has_found_nothing(state):
                return

    def _has_found_nothing(self, state: State[Batch, Any]) -> bool:
        """True after a pass without a batch: the data is an iterator that is used up."""
        position = state.control.position
        return position is not None and position.began == state.iteration

    def _begin(self, state: State[Batch, Any]) -> Iterator[Batch]:
        earlier = state.control.position
        number = self.next_number(earlier)
        if state.training:  # an evaluation may read the data set of the training around it
            tell_epoch(self.data, number)
        rng = capture_generators(self.data)
        seed = seed_from(rng) if earlier is None else earlier.seed
        position = state.control.position = Position(number, state.iteration, rng, seed)
        position.sizes, position.dealing = self.source.sizes(), self.source.dealing()
        consumed = read_again(self.data, position, earlier)
        check_same_ranks(earlier, consumed)
        self._has_opened = True
        batches = self.source.open(position, consumed)
        if consumed:  # what an iterator draws as it is read again, it has drawn before this pass
            restore_generators(rng, self.data)
        return self._with_shares(batches, 1, state)

    def _reopen(self, state: State[Batch, Any]) -> Iterator[Batch]:
        position = state.control.position
        assert position is not None
        if isinstance(self.data, Iterator) and position.source is self.data:
            return rest_of(self.data)
        now = capture_generators(self.data)
        restore_generators(position.rng, self.data)
        tell_epoch(self.data, position.number)
        consumed = self._consumed(position, state)
        if position.source is not None:  # another iterator, in this process
            position.read_from = None
        batches = self.source.open(position, consumed)
        position.source = self.data if isinstance(self.data, Iterator) else None
        self._has_opened = True
        restore_generators(now, self.data)
        return self._with_shares(batches, consumed + 1, state)

    def _is_inside(self, position: Position, state: State[Batch, Any]) -> bool:
        """True if this process is to go on inside the pass that was left."""
        if not position.number or position.used_up or position.source is self.data:
            return False
        return self._repeated is not None or (state.control.in_epoch and self._is_open(state))

    def _consumed(self, position: Position, state: State[Batch, Any]) -> int:
        """How many batches of the pass have come, or of all passes of an iterator."""
        is_anew = position.source is not None or position.read_from is None
        return state.iteration - (position.began if is_anew else position.read_from or 0)

    def _with_shares(
        self, batches: Iterator[Batch], first: int, state: State[Batch, Any]
    ) -> Iterator[Batch]:
        """These batches, each with its weight in a mean over ranks, where weights may be unlike."""
        shares = self.source.shares() if state.training else None
        return batches if shares is None else _weighted(batches, shares, first, state)

    def _settle(self, position: Position, left: Rng) -> None:
        """Between two epochs, when the data may change: keep the generators of new data."""
        if len(generators_of(self.data)) != len(left.generators):
            left.generators = capture_generators(self.data).generators
        if position.told is not None:
            self.source.settle(position.told)


def _weighted(
    batches: Iterator[Batch], shares: dict[int, float], first: int, state: State[Batch, Any]
) -> Iterator[Batch]:
    for number, batch in enumerate(batches, first):
        state.share = shares.pop(number, 1.0)
        yield batch
    state.share = 1.0


def source_of(data: Iterable[Any], each_once: bool = False) -> Source[Any]:
    """Choose how this data resumes: by its own state, by skipping indices, or by reading again.

    With `each_once`, a rank without a sample of a short batch has one batch less.
    """
    if (found := inside(data)) is not None:
        return Prepared(data, found, source_of(found.loader, each_once))
    if callable(getattr(data, "state_dict", None)) and callable(
        getattr(data, "load_state_dict", None)
    ):
        tell_of_repeats(data)
        return Stateful(data)
    if "torch.utils.data" in sys.modules:
        from .dataloader import Loader, is_plain

        if is_plain(data):
            return Loader(data, each_once)
        tell_of_repeats(data)
    return Source(data)


def order_of(data: Any) -> str | None:
    """The order that ranks share, and the samples of a batch over all of them; None if unknown."""
    if (found := inside(data)) is not None:
        data = found.loader
    if not hasattr(data, "batch_sampler") or "torch.utils.data" not in sys.modules:
        return None
    from .shares import dealing_of

    dealing = dealing_of(data)
    if dealing.batch is None or dealing.ranks == 1:
        return None
    return f"{dealing.order} on {dealing.ranks} ranks, {dealing.batch} samples a batch"


def length_of_pass(data: object, each_once: bool = False) -> int | None:
    """The number of batches of a pass over data that is not open yet."""
    if "torch.utils.data" in sys.modules:
        from .dataloader import is_plain
        from .shares import dealt

        if is_plain(data) and (share := dealt(data, each_once)) is not None:
            return len(share)
    return length_of(data)


def is_read(data: object) -> bool:
    """True if a run that is under way, in this thread, reads this data."""
    state = under_way.get()
    while state is not None and state.control.data is not data:
        state = state.control.outer
    return state is not None


def tell_epoch(data: object, number: int) -> None:
    """Call `set_epoch` of samplers and data sets that shuffle by epoch; they count from 0."""
    for part in _by_epoch(data):
        part.set_epoch(number - 1)


def told_epoch(data: object) -> int | None:
    """The epoch, from 0, that samplers and data sets were told last; None if they do not say it."""
    told = (getattr(part, "epoch", None) for part in _by_epoch(data))
    return next((each for each in told if isinstance(each, int) and each >= 0), None)


def _by_epoch(data: object) -> list[Any]:
    batch_sampler = getattr(data, "batch_sampler", None)
    parts: list[Any] = [data, getattr(data, "dataset", None), getattr(data, "sampler", None)]
    parts.append(batch_sampler)
    parts.append(getattr(batch_sampler, "sampler", None))
    return list({id(part): part for part in parts if hasattr(part, "set_epoch")}.values())

"""The batches of a run: epoch after epoch, from where an earlier part of the run stopped."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from typing import Any, Generic

from ..state import Batch, Position, Rng, State, seed_from, under_way
from .in_step import InStep
from .order import is_of_other_ranks
from .passes import Pass, as_the_pass_began
from .sources import Source, is_stream, shortest
from .trail import END

logger: logging.Logger = logging.getLogger("camshaft")

PREPARED = {"DataLoaderAdapter", "_FabricDataLoader"}
"""The classes of loaders that accelerate and Lightning Fabric have prepared."""


@dataclass(eq=False)
class Feed(Generic[Batch]):
    """Gives the batches of each epoch, starting at the position in the state.

    An epoch is one pass over the data. With `repeats`, it is `limit` batches from an endless series
    of passes; of an iterator, epochs share the only pass.

    At the start of a run, the loop calls `restore`; in each epoch, `agree_on_length` first, then
    `epoch` for the batches, and then `complete_epoch`; at a save, `store`. A subclass with other
    epochs overrides them, and reads by `begin_pass` and `reopen_pass`, which keep the position.
    """

    data: Iterable[Batch]
    state: State[Batch, Any]
    """The state of the run, with the position in the data."""
    limit: int | None = None
    """The most batches of an epoch."""
    repeats: bool = False
    """True if the next epoch reads on, False if it begins the data again."""
    in_step: InStep = field(default_factory=InStep)
    """Ends epochs on all ranks together."""
    named: dict[str, Any] = field(default_factory=dict[str, Any])
    """The random generators besides the global ones and the data's: the loop finds them."""
    is_open: bool = field(default=False, init=False)
    """True while the loop reads epochs."""
    _cut: int | None = field(default=None, init=False)
    """The most batches of this epoch: `limit`, or fewer where another rank has fewer."""
    _pass: Pass[Batch] | None = field(default=None, init=False)
    """The pass that this process reads; None before it has begun one or gone on with one."""
    _has_warned: bool = field(default=False, init=False)

    @cached_property
    def source(self) -> Source[Batch]:
        """The source that reads and resumes the data."""
        source = source_of(self.data, each_once=not self.state.training)
        source.named = self.named
        return source

    @property
    def position(self) -> Position | None:
        """The current or latest pass; None before the first."""
        return self.state.control.position

    @property
    def is_used_up(self) -> bool:
        """True if the data of a rank has ended for good: it is an iterator."""
        position, is_empty = self.position, not self.state.iteration_in_epoch
        has_ended = position is not None and position.is_complete
        return has_ended and (self.in_step.cannot_rewind or is_empty)

    def agree_on_length(self) -> int | None:
        """Find the batches of an epoch, the same number on all ranks; None if it is unknown."""
        state, source, position = self.state, self.source, self.position
        self._cut = self.limit
        if self.repeats:
            length = self.limit
        else:
            number, is_inside = 0 if position is None else position.number, self._goes_on()
            if state.training:  # the length may depend on the pass
                source.tell(number if is_inside else number + 1)
            is_loaded = position is not None and position.is_loaded
            is_begun = is_inside and (self.is_open or is_loaded)
            dealing = position.dealing if position and is_begun else None
            with as_the_pass_began(state) if is_begun else nullcontext():
                length = source.length(dealing)
            if length is not None:
                length = shortest(length, self.limit)
            if source.fills_up and state.training:
                return None  # ranks ask one another in each pass
        agreed = self.in_step.agree(self.data, length)
        if agreed not in (None, length):
            self._cut = agreed
        return agreed

    def undealt(self) -> int:
        """A checksum of samples that nothing deals out to the ranks; 0 if there are none."""
        if "torch.utils.data" not in sys.modules:
            return 0
        from .dataloader import is_plain, undealt_samples

        data = self.source.data
        is_like = is_plain(data) or self.source.has_state  # as torchdata's loader is
        return undealt_samples(data) if is_like else 0

    def shared(self) -> int:
        """A checksum of some samples of a data set that the ranks share; 0 if there are none."""
        if not (self.state.training and self.source.skips and str(self.source.order)):
            return 0
        from .dataloader import shared_samples

        return shared_samples(self.source.data)

    def restore(self, *, is_over: bool = False) -> None:
        """Continue where the run was stored, on any number of ranks; restore the generators.

        With `is_over`, no epoch follows, and the generators get the states from after COMPLETED: a
        script that finds its run finished ends like one that has trained.
        """
        control, position = self.state.control, self.position
        self.is_open = True
        stored = None if position is None else position.rng_when_stored
        rng = (is_over and control.completed) or stored
        if position is not None and position.number and self._pass is None:
            rng = rng or self.source.capture()
            if is_over or (self.state.end is not None and not control.in_epoch):
                self._restore_at_end(position, rng)
            elif self._goes_on():
                self._restore_inside(position, rng)
            else:
                self._restore_between(position, rng)
        if rng is not None:
            self.source.restore(rng)
        if position is not None and not is_over:
            position.rng_when_stored = None

    def _restore_inside(self, position: Position, rng: Rng) -> None:
        """Inside a pass: its order is drawn again, and its consumed batches are skipped."""
        if self.state.training and self.source.skips and not position.is_complete:
            Pass(self.source, self.state, self.in_step).compare_beginning(is_inside=True)
        self.reopen_pass()
        if self.source.is_ahead_anew:  # the generators of a sampler are as far as its indices
            rng.generators = self.source.capture().generators
        if position.is_complete:  # no batch is left of it
            self._restore_between(position, rng)

    def _restore_between(self, position: Position, rng: Rng) -> None:
        """Between two passes: the next one begins anew; warn if this one would begin otherwise."""
        if self.state.training:
            Pass(self.source, self.state, self.in_step).compare_beginning(is_inside=False)
        self.source.settle(position, rng)

    def _restore_at_end(self, position: Position, rng: Rng) -> None:
        """Behind the last pass: samplers know the number of it, as they do after training."""
        if self.state.training:
            self.source.tell(position.number)
        self.source.settle(position, rng)

    def epoch(self) -> Iterator[Batch]:
        """The remaining batches of this epoch; none if the run is at `max_iterations` already."""
        state = self.state
        if not self._goes_on():
            self.begin_pass()
        elif self._pass is None:
            self.reopen_pass()
        batches: Iterator[Batch] = chain.from_iterable(self._passes())
        if self._cut is not None:
            batches = islice(batches, self._cut - state.iteration_in_epoch)
        if state.max_iterations is not None and state.iteration >= state.max_iterations:
            return iter(())
        batches = self.in_step.batches(batches, state)
        if state.training and not state.iteration and is_stream(self.data):
            from .dataloader import told_if_alike

            gathered = self.in_step.gathered if self.in_step.are_streams else None
            batches = told_if_alike(batches, self.data, gathered)
        return batches

    def complete_epoch(self, all_read: bool) -> bool:
        """End the epoch; True if it has all its batches, the most that it may have or a pass's.

        If a handler ends the run for good at the last batch, this asks the data for one more batch,
        because a sampler with its own generator draws from it once more at its end.

        Args:
            all_read: False if a handler ended the run or the epoch before the end of `epoch()`.

        Raises:
            ValueError: A pass gave no batch, and this is not the end of an iterator.
        """
        state, reading = self.state, self._pass
        assert reading is not None
        most = state.max_iterations
        is_at_limit = most is not None and state.iteration >= most
        if all_read and state.iteration <= reading.position.began:
            self._refuse_empty(reading.position)
        if all_read and not is_at_limit:
            if state.iteration_in_epoch != self._cut:
                reading.complete()
            return True
        if reading.is_over:
            return True
        may_follow = state.iteration_in_epoch != state.epoch_length
        if may_follow or state.is_interrupted or state.control.epoch_stopped:
            return False
        return state.iteration_in_epoch == self._cut or next(reading.batches, END) is END

    def begin_pass(self, number: int | None = None) -> Pass[Batch]:
        """Begin the pass with this number, by default the next one."""
        self._pass = Pass(self.source, self.state, self.in_step).begin(number)
        return self._pass

    def reopen_pass(self) -> Pass[Batch]:
        """Continue the pass of the position, which this process has not read."""
        position = self.position
        if position is not None and position.at_end and is_of_other_ranks(position, self.source):
            position.is_complete = True  # the pass is over, whatever rank had its samples
        self._pass = Pass(self.source, self.state, self.in_step).reopen()
        return self._pass

    def store(self) -> None:
        """Store the states of the random generators, so that the run can continue exactly."""
        if not self.is_open:  # STARTED has failed, and nothing was read
            return
        state, position, source = self.state, self.position, self.source
        now = source.capture()
        if position is None:
            position = Position(0, state.iteration, now, seed_from(now))
            state.control.position = position
        elif self._pass is not None and not self._pass.is_over:  # else the data is elsewhere
            position.data_state = source.state()
            position.mark = source.mark(state.iteration - position.began)
            is_last = state.iteration_in_epoch == state.epoch_length
            position.at_end = is_last and not self.repeats
        position.rng_when_stored = now

    def warn_of_doubts(self, of_workers: Callable[[Any], list[str]]) -> None:
        """Warn, once per run, of the reasons why a resumed run may not be exact.

        Args:
            of_workers: Tells of generators that workers copy, if they read no sample again.
        """
        if not self._has_warned and self.source.is_sure:
            source = self.source
            has_copies = source.skips and bool(getattr(source.data, "num_workers", 0))
            doubts = source.doubts() + (of_workers(source.data) if has_copies else [])
            # A later step may be the first one that writes into the batches of a list.
            self._has_warned = bool(doubts) or not (source.tensors or source.trail)
            for doubt in doubts:
                logger.warning("a resumed run may not be the same to the last bit: %s", doubt)

    def close(self) -> None:
        """Drop the iterators, so that the workers end with the run."""
        self.is_open, self._pass = False, None
        if "source" in vars(self):
            self.source.trail = None  # its iterator may have workers
            self.source.close()

    def _goes_on(self) -> bool:
        """True if this epoch, or the next one, reads on in the pass of the position."""
        state, position = self.state, self.position
        if position is None or not position.number:
            return False
        # The pass of this epoch may have begun although the run was left before its first batch.
        has_begun = state.iteration_in_epoch or position.began == state.iteration
        if state.control.in_epoch and has_begun:
            return True
        if self.source.is_once:  # another iterator, in the same process, brings further data
            is_other = position.iterator is not None and position.iterator is not self.data
            return position.is_once and not is_other
        return self.repeats and not position.is_complete

    def _passes(self) -> Iterator[Iterator[Batch]]:
        """The batches of the pass; with `repeats`, those of pass after pass that has any."""
        while (reading := self._pass) is not None:
            yield reading.batches
            if not self.repeats or self.source.is_once:
                return  # other ranks may have batches: an empty pass is refused on all together
            if self.state.iteration <= reading.position.began:
                self._refuse_empty(reading.position)
                return
            reading.complete()
            self.begin_pass()

    def _refuse_empty(self, position: Position) -> None:
        """Refuse a pass without a batch, unless its data is an iterator that gave some before."""
        state = self.state
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


def is_read(data: object) -> bool:
    """True if a running run of this thread reads this data."""
    state = under_way.get()
    while state is not None and state.control.data is not data:
        state = state.control.outer
    return state is not None


def source_of(data: Iterable[Any], each_once: bool = False) -> Source[Any]:
    """Choose how this data resumes: by its own state, by skipping indices, or by reading again.

    With `each_once`, a rank that gets no sample of a short batch has one batch less.
    """
    if not PREPARED.isdisjoint(base.__name__ for base in type(data).__mro__):
        from .prepared import inside_prepared

        loader, begin, move = inside_prepared(data)
        source = source_of(loader, each_once)
        source.begin, source.move, source.given = begin, move, data
        return source
    names = ("state_dict", "load_state_dict")
    has_state = all(callable(getattr(data, name, None)) for name in names)
    if "torch.utils.data" in sys.modules:
        from .dataloader import is_plain, source_of_loader, warn_of_repeats

        if is_plain(data) and not has_state:
            return source_of_loader(data, each_once=each_once)
        warn_of_repeats(data)
    if has_state:
        from .stateful import Stateful

        return Stateful(data)
    return Source(data)

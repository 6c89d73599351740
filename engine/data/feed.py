"""The batches of a run: epoch after epoch, from where an earlier part of the run stopped."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from enum import Enum
from functools import cached_property
from itertools import islice
from typing import Any, Generic

from ..state import (
    Batch,
    Position,
    Rng,
    State,
    capture_generators,
    generators_of,
    has_state,
    parts_inside,
    restore_generators,
    same_states,
    seed_from,
    under_way,
)
from .in_step import InStep
from .order import check_same_ranks, go_on, is_of_other_ranks
from .prepared import inside_prepared
from .sources import (
    Source,
    Stateful,
    parts_by_epoch,
    read_again,
    rest_of,
    shortest,
    tell_epoch,
    warn_of_repeats,
)
from .trail import END, check_same_again

logger: logging.Logger = logging.getLogger("camshaft")


class PassEnd(Enum):
    """How the batches of an epoch came to their end."""

    COMPLETE = "complete"
    """The epoch has all its batches: a whole pass, or the most that an epoch may have."""
    LEFT = "left"
    """The run or the epoch was ended earlier, and more batches may follow."""
    EMPTY = "empty"
    """There was no batch: the data is an iterator that earlier epochs used up."""
    FINAL = "final"
    """The epoch has all its batches, and the data is an iterator: no epoch can follow."""


class Feed(Generic[Batch]):
    """Gives the batches of each epoch, starting at the position in the state.

    An epoch is one pass over the data. With `repeats`, it is `limit` batches from an endless series
    of passes.

    In each epoch, the loop calls `length` first, then `epoch` for the batches, and then `end` for
    how they ended. A subclass with other epochs overrides these three, and reads by `begin_pass`
    and `reopen_pass`, which keep the position.
    """

    def __init__(
        self,
        data: Iterable[Batch],
        state: State[Batch, Any],
        limit: int | None = None,
        *,
        repeats: bool = False,
        in_step: InStep | None = None,
    ) -> None:
        """Store the data to read; the loop opens it.

        Args:
            data: The batches.
            state: The state of the run, with the position in the data.
            limit: The most batches of an epoch.
            repeats: True if the next epoch reads on, False if it begins the data again.
            in_step: Ends epochs on all ranks together.
        """
        self.data: Iterable[Batch] = data
        self.state: State[Batch, Any] = state
        self.limit: int | None = limit
        self.repeats: bool = repeats
        self.in_step: InStep = in_step or InStep()
        self.named: dict[str, Any] = {}
        """The random generators besides the global ones and the data's: the loop finds them."""
        self.is_open: bool = False
        """True while the loop reads epochs."""
        self._cut = limit
        """The most batches of this epoch: `limit`, or fewer where another rank has fewer."""
        self._passes: Iterator[Batch] = iter(())
        """All batches to come, if passes are repeated."""
        self._pass: Iterator[Batch] = iter(())
        """The batches of this epoch that are still to come."""
        self._has_opened = False
        """True once this process has begun a pass or continued one."""
        self._has_warned = False
        self._is_continued = False
        """True while the pass is one of which another process read the beginning."""
        self._told: tuple[int, list[Any]] | None = None
        """The pass that parts of the data were told of last, and the epochs that they then had."""

    @cached_property
    def source(self) -> Source[Batch]:
        """The source that reads and resumes the data."""
        return source_of(self.data, each_once=not self.state.training)

    @property
    def position(self) -> Position | None:
        """The current or latest pass; None before the first."""
        return self.state.control.position

    def length(self) -> int | None:
        """The number of batches of an epoch, or None if it is unknown; the same on all ranks."""
        state, position = self.state, self.position
        is_inside = state.control.in_epoch and self._has_begun()
        number = 0 if position is None else position.number
        self._tell(number if is_inside else number + 1)  # the length may depend on it
        dealing = position.dealing if position and is_inside and self.is_open else None
        with self._as_it_began() if is_inside and self.is_open else nullcontext():
            length = self.source.length(dealing)
        if self.repeats:
            length = self.limit
        elif length is not None:
            length = shortest(length, self.limit)
        if self.source.fills_up and state.training and not self.repeats:
            return None  # ranks ask one another in each pass
        agreed = self.in_step.agree(self.data, length)
        self._cut = self.limit if agreed in (None, length) else agreed
        return agreed

    def undealt(self) -> int:
        """A checksum of samples that nothing deals out to the ranks; 0 if there are none."""
        if "torch.utils.data" not in sys.modules:
            return 0
        from .dataloader import is_plain, undealt_samples

        data = self.source.data
        is_like = is_plain(data) or isinstance(self.source, Stateful)  # as torchdata's loader is
        return undealt_samples(data) if is_like else 0

    def take_up(self) -> None:
        """Continue from the saved position, on any number of ranks; restore the generators."""
        state, position = self.state, self.position
        if position is not None and self._is_inside(position):
            self._tell(position.number)
            if position.at_end and is_of_other_ranks(position, self.source):
                position.used_up = True
            else:
                with self._as_it_began():
                    go_on(position, self.source, self._consumed(position), state.epoch)
        self.is_open, state.share = True, 1.0
        if self.repeats:
            self._passes = self._repeat()
        if position is not None and position.left is not None:
            # Inside a pass, `reopen_pass` restores the data; here, no pass is reopened.
            if not state.control.in_epoch or position.used_up:
                # The script may pass other data, which keeps the state of its own generators.
                if len(generators_of(self.data)) != len(position.left.generators):
                    position.left.generators = self._capture().generators
                self.source.settle(position)
            self._restore(position.left)
            position.left = None

    def epoch(self) -> Iterator[Batch]:
        """The remaining batches of this epoch, at most up to `max_iterations`."""
        state, batches = self.state, self._passes
        if not self.repeats:
            batches = self.reopen_pass() if self._has_begun() else self.begin_pass()
        if self._cut is not None:
            batches = islice(batches, self._cut - state.iteration_in_epoch)
        self._pass = batches
        batches = self.in_step.batches(batches, state)
        if state.max_iterations is not None:
            batches = islice(batches, max(0, state.max_iterations - state.iteration))
        return batches

    def end(self, all_read: bool) -> PassEnd:
        """How the batches of this epoch have ended.

        If a handler ends the run for good at the last batch, this asks the data for one more batch,
        because a sampler with its own generator draws from it once more at its end.

        Args:
            all_read: False if a handler ended the run or the epoch before the end of `epoch()`.

        Raises:
            ValueError: A pass gave no batch, and this is not the end of an iterator.
        """
        state, position = self.state, self.position
        if all_read:
            self._refuse_empty()
            if not state.iteration_in_epoch:
                return PassEnd.EMPTY
        if all_read and state.iteration != state.max_iterations:
            if state.iteration_in_epoch == self._cut:
                return PassEnd.COMPLETE
            if position is not None and not self.repeats:
                self._note_length(position)
                position.used_up = True
            return self._at_end_of_data()
        if self._is_used_up():  # an earlier process has read this pass to its end
            return self._at_end_of_data()
        may_follow = state.iteration_in_epoch != state.epoch_length
        if may_follow or state.is_interrupted or state.control.epoch_stopped:
            return PassEnd.LEFT
        is_last = self.repeats or next(self._pass, END) is END
        return PassEnd.COMPLETE if is_last else PassEnd.LEFT

    def begin_pass(self, number: int | None = None) -> Iterator[Batch]:
        """Begin the pass with this number, by default the next one."""
        state, earlier = self.state, self.position
        if number is None:
            number = 1 if earlier is None else earlier.number + 1
        parts = self._parts()
        self._tell(number)
        rng = self._capture()
        seed = seed_from(rng) if earlier is None else earlier.seed
        position = state.control.position = Position(number, state.iteration, rng, seed)
        position.sizes, position.dealing = self.source.sizes(), self.source.order.dealing()
        position.parts = {name: deepcopy(each.state_dict()) for name, each in parts.items()}
        consumed = read_again(self.data, position, earlier)
        if earlier is not None:
            position.usual, position.mark = earlier.usual, earlier.mark if consumed else None
        check_same_ranks(earlier, consumed)
        self._has_opened, self._is_continued = True, False
        if (noted := state.control.noted) is not None:
            noted.begin_pass()
        batches = self._open(position, consumed)
        if consumed:  # reading an iterator again must not draw: it drew these numbers before
            self._restore(rng)
        return batches

    def reopen_pass(self) -> Iterator[Batch]:
        """Continue the current pass."""
        position = self.position
        assert position is not None
        if self._is_used_up():
            return iter(())
        if isinstance(self.data, Iterator) and position.source is self.data:
            return rest_of(self.data)
        now = self._capture()
        self._restore(position.rng)
        parts = {name: each for name, each in self._parts().items() if name in position.parts}
        left = {name: deepcopy(each.state_dict()) for name, each in parts.items()}
        for name, each in parts.items():
            each.load_state_dict(deepcopy(position.parts[name]))
            self._told = None
        self._tell(position.number)
        consumed = self._consumed(position)
        if position.source is not None:  # another iterator, in this process
            position.read_from = position.mark = None
        with self._as_it_began():
            batches = self._open(position, consumed)
        position.source = self.data if isinstance(self.data, Iterator) else None
        self._has_opened = self._is_continued = True
        for name, each in parts.items():  # else drawing has brought it to where it was
            if not same_states(each.state_dict(), left[name]):
                each.load_state_dict(left[name])
        self._restore(now)
        return batches

    def put_back(self, rng: Rng | None = None) -> None:
        """Put data that this process has not read, and generators, where the run left them.

        Without `rng`, the process's generators keep their states. So a script that finds its run
        finished ends in the same state as a script that has just trained.
        """
        position = self.position
        is_unread = position is not None and position.number > 0 and not self._has_opened
        if rng is None and not is_unread:
            return
        rng = rng or self._capture()
        if position is not None and is_unread:
            tell_epoch(self.data, position.number)
            self.source.settle(position)
        self._restore(rng)

    def leave(self) -> None:
        """Store the states of the random generators, so that the run can continue exactly."""
        if not self.is_open:  # STARTED has failed, and nothing was read
            return
        state, position = self.state, self.position
        now = self._capture()
        if position is None:
            position = Position(0, state.iteration, now, seed_from(now))
            state.control.position = position
        elif position.number and self._has_opened:
            # Until this process has opened a pass, the data is not at the position.
            position.told = self.source.state()
            read_from = position.began if position.read_from is None else position.read_from
            position.mark = self.source.mark(state.iteration - read_from)
            is_last = state.iteration_in_epoch == state.epoch_length
            position.at_end = is_last and not self.repeats
        position.left = now

    def warn_of_doubts(self, of_workers: Callable[[Any], list[str]]) -> None:
        """Warn, once per run, of the reasons why a resumed run may not be exact.

        Args:
            of_workers: Tells of generators that workers copy, if they read no sample again.
        """
        if not self._has_warned and self.source.is_sure:
            self._has_warned = True
            source = self.source
            for doubt in source.doubts() + (of_workers(source.data) if source.skips else []):
                logger.warning("a resumed run may not be the same to the last bit: %s", doubt)

    def close(self) -> None:
        """Drop the iterators, so that the workers end with the run."""
        self.is_open = False
        self._passes = self._pass = iter(())  # breaks the reference cycle with the generator
        if "source" in vars(self):
            self.source.close()

    def _tell(self, number: int) -> None:
        """Tell parts of the data which pass begins, unless they were told and still know it."""
        if not self.state.training:  # it may share its data set with the training around it
            return
        parts = parts_by_epoch(self.data)
        if self._told != (number, [getattr(each, "epoch", None) for each in parts]):
            for part in parts:
                part.set_epoch(number - 1)
            self._told = number, [getattr(each, "epoch", None) for each in parts]

    def _parts(self) -> dict[str, Any]:
        """By name: the objects of the engine, with a state, from which the data draws."""
        engine = self.state.control.engine
        if engine is None or not self.state.training or isinstance(self.source, Stateful):
            return {}
        named = {id(each): name for name, each in engine.objects.items() if has_state(each)}
        return {named[id(e)]: e for e in parts_inside(self.data, lambda thing: id(thing) in named)}

    def _note_length(self, position: Position) -> None:
        """Note how long a pass was; warn of a continued one that was not as long as is known."""
        count = self.state.iteration - position.began
        lengths = (self.source.length(position.dealing), position.usual)
        known = {length for length in lengths if length}
        workers = getattr(self.source.data, "num_workers", 0) or 1  # each may end by a short batch
        if self._is_continued and known and min(abs(count - one) for one in known) >= workers:
            logger.warning(
                "the resumed epoch %d has ended after %d batches instead of %s: unless its length "
                "varies, samples have come twice or never, and camshaft prove shows where",
                *(self.state.epoch, count, " or ".join(map(str, known))),
            )
        self._is_continued = False
        position.usual = count if position.usual in (None, count) else 0

    def _capture(self) -> Rng:
        return capture_generators(self.data, self.named)

    def _restore(self, rng: Rng) -> None:
        restore_generators(rng, self.data, self.named)

    def _as_it_began(self) -> AbstractContextManager[None]:
        """Gives the data the settings with which its current pass began."""
        noted = self.state.control.noted
        return nullcontext() if noted is None else noted.as_the_pass_began()

    def _has_begun(self) -> bool:
        """True if this epoch's pass has begun, even if the run stopped before its first batch."""
        state, position = self.state, self.position
        if position is not None and position.number > 0 and position.began == state.iteration:
            return True
        return state.iteration_in_epoch > 0

    def _is_used_up(self) -> bool:
        """True if the pass of this epoch was read to its end, perhaps by an earlier process."""
        return self.position is not None and self.position.used_up and not self.repeats

    def _is_inside(self, position: Position) -> bool:
        """True if this process has to continue the pass that was left."""
        if not position.number or position.used_up or position.source is self.data:
            return False
        return self.repeats or (self.state.control.in_epoch and self._has_begun())

    def _at_end_of_data(self) -> PassEnd:
        return PassEnd.FINAL if self.in_step.is_stuck else PassEnd.COMPLETE

    def _refuse_empty(self) -> None:
        """Refuse a pass without a batch, unless its data is an iterator that gave some before."""
        state, position = self.state, self.position
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

    def _repeat(self) -> Iterator[Batch]:
        """Pass after pass, from the position on, until a pass has no batch."""
        is_begun = self.position is not None and self.position.number > 0
        batches = self.reopen_pass() if is_begun else self.begin_pass()
        while True:
            yield from batches
            self._refuse_empty()
            if self.position is not None:
                self._note_length(self.position)
            if self.position is None or self.position.began == self.state.iteration:
                return
            batches = self.begin_pass()

    def _open(self, position: Position, consumed: int) -> Iterator[Batch]:
        """The batches of a pass after the consumed ones, each with its weight over ranks."""
        source = self.source
        if source.begin is not None:
            source.begin()
        batches = source.open(position, consumed)
        if consumed:
            check_same_again(source, position, consumed, self.state.epoch)
        position.is_loaded = False
        if source.fills_up and self.state.training and self.in_step.is_on:
            batches = self.in_step.filled(batches, source, self.state)
        if source.move is not None:
            batches = map(source.move, batches)
        shares = source.order.shares if self.state.training else None
        return batches if shares is None else _weighted(batches, shares, consumed + 1, self.state)

    def _consumed(self, position: Position) -> int:
        """How many batches of the pass are consumed; for an iterator, of all its passes."""
        is_anew = position.source is not None or position.read_from is None
        return self.state.iteration - (position.began if is_anew else position.read_from or 0)


def _weighted(
    batches: Iterator[Batch], shares: dict[int, float], first: int, state: State[Batch, Any]
) -> Iterator[Batch]:
    for number, batch in enumerate(batches, first):
        state.share = shares.pop(number, 1.0)
        yield batch
    state.share = 1.0


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
    if (found := inside_prepared(data)) is not None:
        loader, begin, move = found
        source = source_of(loader, each_once)
        source.begin, source.move = begin, move
        return source
    if callable(getattr(data, "state_dict", None)) and callable(
        getattr(data, "load_state_dict", None)
    ):
        warn_of_repeats(data)
        return Stateful(data)
    if "torch.utils.data" in sys.modules:
        from .dataloader import is_plain, source_of_loader

        if is_plain(data):
            return source_of_loader(data, each_once=each_once)
        warn_of_repeats(data)
    return Source(data)

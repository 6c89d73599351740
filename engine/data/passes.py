"""A pass over the data: begun, or gone on with behind the batches that an earlier process had."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain, islice
from types import GeneratorType
from typing import Any, Generic, Self

from ..state import (
    Batch,
    Position,
    State,
    generators_of,
    has_state,
    parts_inside,
    same_states,
    seed_from,
)
from .in_step import InStep
from .order import go_on
from .sources import Source, rest_of
from .trail import (
    END,
    begins_otherwise,
    check_same_again,
    of_first_batch,
    warn_of_no_beginning,
    warn_of_other_beginning,
    warn_of_other_samples,
)

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(eq=False)
class Pass(Generic[Batch]):
    """Once through the data: its position, for checkpoints, and the batches that are left."""

    source: Source[Batch]
    state: State[Batch, Any]
    in_step: InStep
    batches: Iterator[Batch] = field(default_factory=lambda: iter(()))
    is_continued: bool = False
    """True if another process has read the beginning."""
    is_over: bool = False
    """True if another process has read all of it."""
    position: Position = field(init=False)
    """The position of the run, which is in this pass."""

    def begin(self, number: int | None = None) -> Self:
        """Begin a pass, the next one unless a number is given; return it.

        Its order is drawn from the random generators as they are now.
        """
        source, state, earlier = self.source, self.state, self.state.control.position
        objects = self._objects_inside()
        if number is None:
            number = 1 if earlier is None else earlier.number + 1
        if state.training:  # an evaluation may share its data set with the training around it
            source.tell(number)
        rng = source.capture()
        # A save before the first pass has a position, too, which is in none.
        seed = earlier.seed if earlier is not None and earlier.number else seed_from(rng)
        position = Position(number, state.iteration, rng, seed)
        self.position = state.control.position = position
        position.sizes, position.dealing = source.sizes(), source.order.dealing()
        position.parts = {name: deepcopy(each.state_dict()) for name, each in objects.items()}
        position.usual = None if earlier is None else earlier.usual
        if (noted := state.control.noted) is not None:
            noted.begin_pass()
        self._open(0)
        return self

    def reopen(self) -> Self:
        """Go on with the pass of the position, whose order is drawn once more; return it.

        Raises:
            ValueError: The data, or the ranks, are others than a pass can go on with.
        """
        source, state, position = self.source, self.state, self.state.control.position
        assert position is not None
        self.position = position
        if position.is_complete and state.control.in_epoch:
            self.is_over = True
            return self
        position.is_complete = False  # the iterator of a script that has more data may give more
        if position.iterator is source.given:  # it stands where this process has left it
            self.batches = rest_of(source.data)
            return self
        consumed = state.iteration - position.began
        with self._rewound():
            go_on(position, source, consumed, state.epoch)
            if position.iterator is not None:  # another iterator, of which no checksum is known
                position.mark = None
            self._open(consumed)
        self.is_continued = True
        return self

    def compare_beginning(self, *, is_inside: bool) -> None:
        """Begin the latest pass of another process once more, and warn if it begins otherwise.

        In the middle of a pass, what is read again shows what a source keeps to itself. Between two
        passes, nothing else would. The samples of indices that are skipped are read nowhere else.
        """
        source, position = self.source, self.state.control.position
        assert position is not None
        is_here = not position.is_loaded  # a source of this process has what it keeps
        is_other = len(generators_of(source.given)) != len(position.rng.generators)
        ones = getattr(source.order, "ones", None)
        kept = getattr(ones, "__dict__", {}).values()  # all iterators may share one, as of mmengine
        is_once = any(isinstance(each, GeneratorType) for each in kept)
        is_once |= isinstance(ones, Iterator)  # as source.is_once
        is_once |= source.is_once or position.is_once
        if is_here or is_other or is_once or source.has_state:
            return
        known, _, values = (position.first_batch or ":").partition(":")
        has_values = bool(values) and of_first_batch(source, END).startswith(known)
        is_known = source.is_known or is_inside
        if is_known and not has_values:
            return
        self.position = position
        noted = self.state.control.noted
        with nullcontext() if noted is None else noted.kept(), self._rewound():
            if source.begin is not None:
                source.begin()
            try:
                batch = source.first_batch(position)
            except Exception as error:  # the run does not need this batch
                warn_of_no_beginning(error, self.state.epoch)
                return
            has_changed = begins_otherwise(source, position)
            if has_changed and not is_known:
                warn_of_other_beginning(source, position, self.state.epoch)
            if has_values and not has_changed:
                warn_of_other_samples(source, position, batch, self.state.epoch)
        position.is_loaded = False

    @contextmanager
    def _rewound(self) -> Generator[None, None, None]:
        """Within a `with` block, generators, objects and settings are as when the pass began."""
        source, state, position = self.source, self.state, self.position
        objects = {n: each for n, each in self._objects_inside().items() if n in position.parts}
        now = source.capture()
        left = {name: deepcopy(each.state_dict()) for name, each in objects.items()}
        source.restore(position.rng)
        for name, each in objects.items():
            each.load_state_dict(deepcopy(position.parts[name]))
            source.epoch_told = None  # this may have put the epoch of another pass back
        if state.training:
            source.tell(position.number)
        try:
            with as_the_pass_began(state):
                yield
        finally:
            for name, each in objects.items():  # those that drawing again has not put back
                if not same_states(each.state_dict(), left[name]):
                    each.load_state_dict(left[name])
            are_new = len(generators_of(source.given)) != len(now.generators)  # by drawing again
            if are_new or source.is_ahead_anew:
                now.generators = source.capture().generators
            source.restore(now)

    def complete(self) -> None:
        """Note that no batch of this pass follows; warn if it went on with another length."""
        position = self.position
        if position.is_complete:
            return
        position.is_complete = True
        count = self.state.iteration - position.began
        lengths = (self.source.length(position.dealing), position.usual)
        known = {length for length in lengths if length}
        workers = getattr(self.source.data, "num_workers", 0) or 1  # each may end by a short batch
        if self.is_continued and known and min(abs(count - one) for one in known) >= workers:
            logger.warning(
                "the resumed epoch %d has ended after %d batches instead of %s: unless its length "
                "varies, samples have come twice or never, and camshaft prove shows where",
                *(self.state.epoch, count, " or ".join(map(str, known))),
            )
        position.usual = count if position.usual in (None, count) else 0

    def _open(self, consumed: int) -> None:
        """Find the batches after the consumed ones, each with its weight over ranks."""
        source, state, position = self.source, self.state, self.position
        position.is_once = source.is_once
        position.iterator = source.given if isinstance(source.given, Iterator) else None
        if source.begin is not None:
            source.begin()
        batches = source.open(position, consumed)
        if consumed:
            check_same_again(source, position, consumed, state.epoch)
        position.is_loaded = False
        if source.skips and state.training and not consumed:
            batches = chain(_with_first_noted(batches, source, position), batches)
        if source.fills_up and state.training and self.in_step.is_on:
            batches = self.in_step.filled(batches, source, state)
        if source.move is not None:
            batches = map(source.move, batches)
        shares = source.order.shares if state.training else None
        if shares is not None:
            batches = _weighted(batches, shares, consumed + 1, state)
        self.batches = batches

    def _objects_inside(self) -> dict[str, Any]:
        """By name: the objects of the engine, with a state, from which the data draws."""
        engine, source = self.state.control.engine, self.source
        if engine is None or not self.state.training or source.has_state:
            return {}
        named = {id(each): name for name, each in engine.objects.items() if has_state(each)}
        found = parts_inside(source.given, lambda thing: id(thing) in named)
        return {named[id(each)]: each for each in found}


def as_the_pass_began(state: State[Any, Any]) -> AbstractContextManager[None]:
    """Within a `with` block, the data has the settings with which its current pass began."""
    noted = state.control.noted
    return nullcontext() if noted is None else noted.as_the_pass_began()


def _with_first_noted(
    batches: Iterator[Batch], source: Source[Batch], position: Position
) -> Iterator[Batch]:
    """The first batch, of whose values a checksum is taken before a step may change them.

    It does not know the pass, which would be a reference cycle: a run that ends in its first
    iteration would leave its workers to the garbage collector.
    """
    for batch in islice(batches, 1):
        position.first_batch = of_first_batch(source, batch)
        yield batch


def _weighted(
    batches: Iterator[Batch], shares: dict[int, float], first: int, state: State[Batch, Any]
) -> Iterator[Batch]:
    for number, batch in enumerate(batches, first):
        state.share = shares.pop(number, 1.0)
        yield batch
    state.share = 1.0

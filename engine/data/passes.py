"""A pass over the data: begun, or gone on with behind the batches that an earlier process had."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Any, Generic, Self

from ..state import Batch, Position, State, has_state, parts_inside, seed_from
from .in_step import InStep
from .order import go_on
from .sources import Source, rest_of
from .trail import check_same_again, same_states

logger: logging.Logger = logging.getLogger("camshaft")


class Pass(Generic[Batch]):
    """Once through the data: its position, for checkpoints, and the batches that are left."""

    def __init__(
        self, source: Source[Batch], state: State[Batch, Any], in_step: InStep, position: Position
    ) -> None:
        self.source = source
        self.state = state
        self.in_step = in_step
        self.position = position
        self.batches: Iterator[Batch] = iter(())
        self.is_continued: bool = False
        """True if another process has read the beginning."""

    @classmethod
    def begin(
        cls,
        source: Source[Batch],
        state: State[Batch, Any],
        in_step: InStep,
        number: int | None = None,
    ) -> Self:
        """Begin a pass, the next one unless a number is given.

        Its order is drawn from the random generators as they are now.
        """
        earlier, objects = state.control.position, _objects_inside(source, state)
        if number is None:
            number = 1 if earlier is None else earlier.number + 1
        if state.training:  # an evaluation may share its data set with the training around it
            source.tell(number)
        rng = source.capture()
        seed = seed_from(rng) if earlier is None else earlier.seed
        position = state.control.position = Position(number, state.iteration, rng, seed)
        position.sizes, position.dealing = source.sizes(), source.order.dealing()
        position.parts = {name: deepcopy(each.state_dict()) for name, each in objects.items()}
        position.usual = None if earlier is None else earlier.usual
        if (noted := state.control.noted) is not None:
            noted.begin_pass()
        begun = cls(source, state, in_step, position)
        begun._open(0)
        return begun

    @classmethod
    def reopen(cls, source: Source[Batch], state: State[Batch, Any], in_step: InStep) -> Self:
        """Go on with the pass of the position: its order is drawn once more.

        For this, the random generators, the objects of the engine that are inside the data, and
        the data's own settings are for a while as they were when the pass began.

        Raises:
            ValueError: The data, or the ranks, are others than a pass can go on with.
        """
        position = state.control.position
        assert position is not None
        reopened = cls(source, state, in_step, position)
        if position.is_complete:
            return reopened
        if position.iterator is source.given:  # it stands where this process has left it
            reopened.batches = rest_of(source.given)
            return reopened
        consumed = state.iteration - position.began
        if state.training:
            source.tell(position.number)
        with as_the_pass_began(state):
            go_on(position, source, consumed, state.epoch)
        now = source.capture()
        source.restore(position.rng)
        objects = _objects_inside(source, state)
        objects = {name: each for name, each in objects.items() if name in position.parts}
        left = {name: deepcopy(each.state_dict()) for name, each in objects.items()}
        for name, each in objects.items():
            each.load_state_dict(deepcopy(position.parts[name]))
            source.epoch_told = None
        if state.training:
            source.tell(position.number)
        if position.iterator is not None:  # another iterator, of which no checksum is known
            position.mark = None
        with as_the_pass_began(state):
            reopened._open(consumed)
        reopened.is_continued = True
        for name, each in objects.items():  # else drawing has brought it to where it was
            if not same_states(each.state_dict(), left[name]):
                each.load_state_dict(left[name])
        source.restore(now)
        return reopened

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
        if source.fills_up and state.training and self.in_step.is_on:
            batches = self.in_step.filled(batches, source, state)
        if source.move is not None:
            batches = map(source.move, batches)
        shares = source.order.shares if state.training else None
        if shares is not None:
            batches = _weighted(batches, shares, consumed + 1, state)
        self.batches = batches


def as_the_pass_began(state: State[Any, Any]) -> AbstractContextManager[None]:
    """Within a `with` block, the data has the settings with which its current pass began."""
    noted = state.control.noted
    return nullcontext() if noted is None else noted.as_the_pass_began()


def _objects_inside(source: Source[Any], state: State[Any, Any]) -> dict[str, Any]:
    """By name: the objects of the engine, with a state, from which the data draws."""
    engine = state.control.engine
    if engine is None or not state.training or source.has_state:
        return {}
    named = {id(each): name for name, each in engine.objects.items() if has_state(each)}
    found = parts_inside(source.given, lambda thing: id(thing) in named)
    return {named[id(each)]: each for each in found}


def _weighted(
    batches: Iterator[Batch], shares: dict[int, float], first: int, state: State[Batch, Any]
) -> Iterator[Batch]:
    for number, batch in enumerate(batches, first):
        state.share = shares.pop(number, 1.0)
        yield batch
    state.share = 1.0

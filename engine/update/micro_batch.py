"""A micro-batch: a forward and a backward pass that take one place in an accumulation window."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor

from ..state import State
from .window import by_share

if TYPE_CHECKING:
    from types import TracebackType

    from .update import Update

AS_IS = nullcontext()


class MicroBatch:
    """The forward and the backward pass of one micro-batch, as a context: `Update.micro_batch`.

    For a whole micro-batch, call `update(state, loss)` inside. For a micro-batch in parts, call
    `backward` once for each part, and then `count`.
    """

    __slots__ = ("_averaging_off", "_defers", "_state", "_update")

    def __init__(self, update: Update, state: State[Any, Any]) -> None:
        self._update, self._state = update, state
        self._defers = False
        """True if averaging over ranks is left to a later micro-batch."""
        self._averaging_off: AbstractContextManager[Any] | None = None

    def __enter__(self) -> Self:
        """Begin: choose whether ranks average in these passes; tell torch that a step begins."""
        update, state = self._update, self._state
        if not state.training:
            return self
        window = state.step_under_way.windows.get(update)
        if window is None and update.compiled is not None:
            update.compiled.begin()
        if update.sync is not None:
            calls = 1 if window is None else window.calls + 1
            is_last = calls >= update.accumulate or state.is_last_batch
            self._defers = update.sync.defers(is_last, may_end=state.epoch_length is None)
            self._averaging_off = self._without_averaging(self._defers)
            self._averaging_off.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the passes."""
        if self._averaging_off is not None:
            self._averaging_off.__exit__(kind, error, traceback)

    def part(self, *, more: bool) -> AbstractContextManager[Any]:
        """Run the passes over one of several parts in this context, inside of the micro-batch's.

        Args:
            more: True if further parts follow.
        """
        if self._update.sync is None or self._defers:  # then it is off in the whole micro-batch
            return AS_IS
        return self._without_averaging(more)

    def _without_averaging(self, defers: bool) -> AbstractContextManager[Any]:
        update = self._update
        assert update.sync is not None
        window = self._state.step_under_way.windows.get(update)
        if window is None and defers:
            window = update.open(self._state)
        if window is not None:
            window.defers_reduce = defers
        return update.sync.off() if defers else AS_IS

    def backward(self, loss: Tensor, *, is_sum: bool = False, retain_graph: bool = False) -> None:
        """Add the gradients of a part of the micro-batch.

        Args:
            loss: The loss of this part, in proportion to its samples.
            is_sum: True if the loss is a sum over targets, whose number `count` is given.
            retain_graph: True to keep the graph for a further backward pass.
        """
        update, state = self._update, self._state
        if (check := state.step_under_way.check) is not None:
            check.enter(update, loss)
        loss, *_ = by_share(state.share, loss, 1.0 if is_sum else None)
        update.backward(state, loss, retain_graph)

    def count(self, loss: Tensor, weight: Tensor | float | None = None) -> None:
        """Count the micro-batch after its backward passes; step if its window is complete."""
        update, state = self._update, self._state
        step = state.step_under_way
        update.meet(state, weight, has_loss=True)
        _, weight, _ = by_share(state.share, loss, weight)
        window = step.windows[update]
        window.add(loss, weight)
        is_whole = window.calls >= update.accumulate or state.is_last_batch
        if is_whole and not window.is_held:
            update.close(state)

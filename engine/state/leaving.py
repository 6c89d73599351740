"""Evaluations that a run leaves because it has to stop: the resumed run makes them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..events import Events
from ..outputs import Output
from .memory_tree import devices_of, is_usual, on_devices, with_tensors
from .values import walk

if TYPE_CHECKING:
    from .state import State

OF_START, OF_ITERATION = repr(Events.STARTED), repr(Events.ITERATION_COMPLETED)
LEAVABLE = (
    *(Events.STARTED, Events.EPOCH_STARTED, Events.ITERATION_COMPLETED),
    *(Events.EPOCH_COMPLETED, Events.COMPLETED),
)
"""The events that a resumed run takes up at the handler whose evaluation was left."""


class Left(BaseException):
    """An evaluation was left; no Exception, so that what handles errors lets it pass."""


def leave_evaluations(
    state: State[Any, Any], innermost: State[Any, Any] | None, reason: str
) -> bool:
    """Begin no further evaluation inside a run that stops, and leave those under way, if possible.

    `innermost` is what is under way. False if it goes on to its end: a run of its own, or an
    evaluation in the middle of a step, of which no checkpoint can hold a part.
    """
    state.control.leaves, inside = True, [state]
    while innermost is not None and innermost is not state:
        if innermost.training:
            return False
        inside.append(innermost)
        innermost = innermost.control.outer
    if len(inside) > 1 and not can_leave(state):
        return False
    for each in inside[1:]:
        each.control.leaves = True
        each.stop(reason, resumable=True)
    return True


def must_leave(evaluation: State[Any, Any]) -> bool:
    """True if an evaluation must not begin, as the run around it stops and can begin it again."""
    outer = evaluation.control.outer
    while outer is not None and not outer.training:
        outer = outer.control.outer
    return outer is not None and outer.control.leaves and can_leave(outer)


def can_leave(state: State[Any, Any]) -> bool:
    """True if the moment that a run is in can be taken up by a resumed run.

    Handlers after an iteration may read its batch and output, which then have to be plain values.
    """
    moments = state.control.moments
    if moments is None or state.step_under_way.windows:
        return False
    inside = [each for each in LEAVABLE if each in moments and moments[each].called is not None]
    if inside != [Events.ITERATION_COMPLETED]:
        return bool(inside)
    return all(is_usual(value) for _, value in walk(_seen(state)))


def dump_left(state: State[Any, Any]) -> dict[str, Any]:
    """The moments that were left, and what handlers see of an iteration besides metrics."""
    moments = state.control.left_at
    seen = _seen(state) if OF_ITERATION in moments else []
    seen = with_tensors(seen, lambda tensor: tensor.detach())
    return {"left": {"moments": {**moments}, "seen": seen, "devices": devices_of(seen)}}


def load_left(state: State[Any, Any], saved: Mapping[str, Any], objects: Any) -> None:
    """Put back what `dump_left` returned."""
    state.control.left_at.update(saved["moments"])
    if OF_ITERATION in saved["moments"]:
        seen = on_devices(saved["seen"], saved["devices"], objects)
        state.batch, output, is_known, state.share, is_skipped = seen
        state.output = Output(*output) if is_known else output
        state.step_under_way.skipped_at = state.iteration if is_skipped else -1


def _seen(state: State[Any, Any]) -> list[Any]:
    output = state.output
    seen = [*output] if (is_known := isinstance(output, Output)) else output
    is_skipped = state.step_under_way.skipped_at == state.iteration
    return [state.batch, seen, is_known, state.share, is_skipped]

"""Evaluations that a run leaves because it has to stop: the resumed run makes them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..events import Events
from ..outputs import Output
from .memory_tree import PLAIN, devices_of, is_usual, on_devices, walk, with_tensors

if TYPE_CHECKING:
    from .state import State

LEAVABLE = (
    *(Events.STARTED, Events.EPOCH_STARTED, Events.ITERATION_COMPLETED),
    *(Events.EPOCH_COMPLETED, Events.COMPLETED),
)
"""The events that a resumed run takes up at the handler whose evaluation was left."""
OF_ITERATION = repr(Events.ITERATION_COMPLETED)


class Left(BaseException):
    """An evaluation was left; raised by `Engine.evaluate`, up to the moment of the run around it.

    It is no Exception, so that scripts which handle errors of an evaluation let it pass.
    """


def leave_evaluations(
    state: State[Any, Any], innermost: State[Any, Any] | None, reason: str
) -> bool:
    """Begin no further evaluation inside a run, and leave those under way before their next batch.

    Args:
        state: The run, which was interrupted.
        innermost: The run under way in this thread: it, or an evaluation inside.
        reason: Why the evaluations end.

    Returns:
        False if an evaluation is made to its end: it is in the middle of a step, of which no
        checkpoint can hold a part.
    """
    state.control.leaves = True
    inside: list[State[Any, Any]] = []
    while innermost is not None and innermost is not state:
        if innermost.training:  # a run of its own, which does not stop
            return False
        inside.append(innermost)
        innermost = innermost.control.outer
    if inside and not can_leave(state):
        return False
    for each in inside:
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
    """True if a resumed run can take up the moment that this run is in: a whole step is behind it.

    Handlers after an iteration may read its batch and its output, so those have to be plain.
    """
    moments = state.control.moments
    if moments is None or state.step_under_way.is_open:
        return False
    inside = [e for e in LEAVABLE if e in moments and moments[e].called is not None]
    if inside == [Events.ITERATION_COMPLETED]:
        return all(is_usual(each) for _, each in walk(_parts(state)))
    return bool(inside)


def dump_iteration(state: State[Any, Any]) -> dict[str, Any] | None:
    """What the handlers of an iteration read besides metrics, if its moment was left."""
    if OF_ITERATION not in state.control.left:
        return None
    parts = with_tensors(_parts(state), lambda tensor: tensor.detach())
    return {"parts": parts, "devices": devices_of(parts)}


def load_iteration(state: State[Any, Any], saved: Mapping[str, Any], objects: Any) -> None:
    """Put back what `dump_iteration` returned."""
    parts = on_devices(saved["parts"], saved["devices"], objects)
    state.batch, state.share = parts["batch"], parts["share"]
    state.output = Output(**parts["output"]) if parts["is_known"] else parts["output"]
    if parts["is_skipped"]:
        state.step_under_way.skipped_at = state.iteration


def _parts(state: State[Any, Any]) -> dict[str, Any]:
    is_known = type(state.output) is Output
    return {
        "batch": state.batch,
        "output": state.output._asdict() if is_known else state.output,
        "is_known": is_known,
        "share": state.share,
        "is_skipped": state.step_under_way.skipped_at == state.iteration,
    }

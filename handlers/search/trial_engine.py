"""The engine of a trial: the real steps, without those who log, save or schedule them."""

from __future__ import annotations

from typing import Any

from ...engine import Engine, Events, Subscription

STEP = {Events.BACKWARD_COMPLETED, Events.GRADIENTS_READY}
"""The events between the backward pass and the optimizer's step."""


def trial_engine(engine: Engine[Any, Any]) -> Engine[Any, Any]:
    """An engine that makes the same steps, with those handlers alone that may change a step.

    These are the functions that are called between the backward pass and the optimizer's step,
    and all of a handler that has such a function: clipping and the guard against NaN take part.
    A handler's attribute `in_trials` decides otherwise: it is True for `Freeze`.
    """
    heard = [each for event in STEP for each in engine.signal(event).receivers.values()]
    between = {id(owner) for each in heard if (owner := _owner(each)) is not None}

    def keep(subscription: Subscription) -> bool:
        owner = _owner(subscription)
        changes_step = id(owner) in between or not STEP.isdisjoint(subscription.trigger.events)
        return bool(getattr(owner, "in_trials", changes_step))

    return engine.bare(keep)


def _owner(receiver: Any) -> Any:
    """The handler whose method a receiver is; None for a function."""
    return getattr(getattr(receiver, "function", None), "__self__", None)

"""What handlers of ignite ask of the run under way, and how their epochs and runs end."""

from __future__ import annotations

import logging
import time
from typing import Any

from ignite.engine import Events

from ....engine import State

logger = logging.getLogger("camshaft")


class Orders:
    """Carries out `terminate`, `terminate_epoch`, `interrupt` and new limits of one run.

    ignite's engine only notes what it was asked; here the note reaches the state of the run.
    """

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        """The bridge; its private attributes are those of ignite's engine."""
        self.is_interrupted = False
        self.has_ended_epoch = False
        """True if an epoch was ended early, and its data have to begin anew."""

    @property
    def are_given(self) -> bool:
        """True if something was asked for and not carried out yet."""
        engine = self.engine
        return bool(
            engine.should_terminate
            or engine.should_terminate_single_epoch
            or engine.should_interrupt
        )

    def carry_out(self, state: State[Any, Any], batches: int | None = None) -> bool:
        """Do what was asked for; True if the run is to be left here.

        Args:
            state: The run.
            batches: How many the epoch has had; None outside of an epoch's batches.

        Raises:
            RuntimeError: An epoch is to end that has not begun.
        """
        engine = self.engine
        if engine.should_terminate:
            state.stop("terminate")
            return True
        if engine.should_terminate_single_epoch:
            if batches is None:
                raise RuntimeError(
                    "terminate_epoch() was called in STARTED or EPOCH_STARTED, where no epoch can "
                    "end; call it in an event of an iteration, or terminate() to end the run"
                )
            engine._fire_event(Events.TERMINATE_SINGLE_EPOCH, iter_counter=batches)
            self.has_ended_epoch = True
            state.stop_epoch()
            return False
        if engine.should_interrupt:
            engine._fire_event(Events.INTERRUPT)
            engine.should_interrupt = False
            self.is_interrupted = True
            state.max_iterations = None  # the next leg completes, also what has reached its limit
            state.stop("interrupt", resumable=True)
            return True
        return False

    def follow_limits(self, state: State[Any, Any]) -> None:
        """Let the loop know how far ignite's state lets the run go, which handlers may change."""
        ignite = self.engine.state
        state.epoch, state.epoch_length = ignite.epoch, ignite.epoch_length
        state.max_epochs, state.max_iterations = ignite.max_epochs, ignite.max_iters

    def end_epoch_after(self, error: Exception, state: State[Any, Any]) -> None:
        """End the epoch after an exception that handlers of EXCEPTION_RAISED have swallowed.

        Raises:
            Exception: They have not.
        """
        self.engine.logger.error("Current run is terminating due to exception: %s", error)
        self.engine._handle_exception(error)
        state.stop_epoch()


def complete_epoch(engine: Any, began: float) -> float:
    """Call the handlers of EPOCH_COMPLETED; return the seconds that the epoch took without them."""
    taken = _complete(engine, Events.EPOCH_COMPLETED, began, engine.should_terminate_single_epoch)
    engine.should_terminate_single_epoch = False
    return taken


def complete_run(engine: Any, began: float) -> None:
    """Call the handlers of TERMINATE and COMPLETED."""
    if engine.should_terminate:
        engine._fire_event(Events.TERMINATE)
    _complete(engine, Events.COMPLETED, began, engine.should_terminate)


def _complete(engine: Any, event: Any, began: float, asked: Any) -> float:
    """Fire an event unless it is to be skipped; note the time without, then with its handlers."""
    times = engine.state.times
    times[event.name] = taken = time.time() - began
    if asked != f"skip_{event.name.lower()}":
        engine._fire_event(event)
        times[event.name] = time.time() - began
    return taken

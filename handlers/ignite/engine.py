"""The ignite `Engine` that stands in front of an engine of Camshaft."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ignite.engine
from ignite.engine import CallableEventWithFilter, EventEnum, Events
from ignite.engine.events import EventsList, RemovableEventHandle
from ignite.handlers.time_profilers import BasicTimeProfiler
from ignite.metrics import Metric

from ...engine import Engine, State
from .run_state import RunState


class StepEvents(EventEnum):
    """Events of optimizer steps, for handlers of ignite."""

    GRADIENTS_READY = "gradients_ready"
    """The gradients of a step are complete: for histograms and norms of gradients."""
    STEP_COMPLETED = "step_completed"
    """An optimizer step was performed: once a window of accumulated batches."""


NEVER_FIRED = {
    Events.DATALOADER_STOP_ITERATION: "Events.EPOCH_COMPLETED comes when the data of an epoch end",
    Events.INTERRUPT: "camshaft.Events.CLOSED comes also when a run is interrupted",
    Events.TERMINATE_SINGLE_EPOCH: "Events.EPOCH_COMPLETED follows terminate_epoch()",
}


class IgniteEngine(ignite.engine.Engine):
    """What handlers of ignite attach to and are called with; made by `as_ignite`.

    Its state shows the run of the engine behind it, and its handlers are called in ignite's order.
    """

    def __init__(self, native: Engine[Any, Any], follow: Callable[[], None]) -> None:
        """Stand in front of `native`; `follow` is called when handlers have come or gone."""
        self._follow: Callable[[], None] | None = None
        super().__init__(_no_process)
        self.state: RunState = RunState()
        counts = {StepEvents.GRADIENTS_READY: "iteration", StepEvents.STEP_COMPLETED: "step"}
        self.register_events(*StepEvents, event_to_attr=counts)
        self._native = weakref.ref(native)
        self._follow = follow
        self._began = self._epoch_began = time.time()

    @property
    def objects(self) -> dict[str, Any]:
        """What Camshaft's checkpoints save by themselves."""
        native = self._native()
        return {} if native is None else native.objects

    def run(  # type: ignore[override]
        self,
        data: Iterable[Any],
        max_epochs: int | None = None,
        max_iters: int | None = None,
        epoch_length: int | None = None,
    ) -> RunState:
        """Run the engine behind this one: for what runs a trainer itself, as LR finders do.

        Raises:
            RuntimeError: The engine behind is gone, or it is an evaluation.
        """
        native = self._native()
        if native is None:
            raise RuntimeError("the engine that this ignite engine stands for is gone; keep it")
        if max_epochs is None and max_iters is None:
            max_epochs = 1
        native.run(data, max_epochs=max_epochs, max_iterations=max_iters, epoch_length=epoch_length)
        return self.state

    def add_event_handler(
        self, event_name: Any, handler: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> RemovableEventHandle:
        """Attach a handler, as by ignite.

        Raises:
            ValueError: Camshaft's loop has nothing like this event.
        """
        if isinstance(event_name, EventsList):
            return super().add_event_handler(event_name, handler, *args, **kwargs)
        if (instead := NEVER_FIRED.get(event_name)) is not None:
            name = getattr(handler, "__qualname__", type(handler).__name__)
            raise ValueError(f"{name} waits for {event_name!r}, which Camshaft has not; {instead}")
        plain = event_name
        if event_name == Events.ITERATION_COMPLETED and _is_update(handler, event_name):
            plain = Events.ITERATION_COMPLETED(event_filter=_counts)
        handle = super().add_event_handler(plain, handler, *args, **kwargs)
        self.follow()
        return handle

    def remove_event_handler(self, handler: Callable[..., Any], event_name: Any) -> None:
        """Call a handler no longer, as by ignite."""
        super().remove_event_handler(handler, event_name)
        self.follow()

    def has_handlers(self, event: Any) -> bool:
        """True if a handler waits for an event."""
        return bool(self._event_handlers.get(event))

    def follow(self) -> None:
        """Let the engine behind call this one for the events that handlers wait for."""
        if self._follow is not None:
            self._follow()

    def terminate(self, skip_completed: bool = False) -> None:
        """End the run after this iteration, as `state.stop` does."""
        super().terminate(skip_completed)
        self.state.run.stop("terminated by a handler of ignite")

    def terminate_epoch(self, skip_epoch_completed: bool = False) -> None:
        """End the epoch after this iteration, as `state.stop_epoch` does."""
        super().terminate_epoch(skip_epoch_completed)
        self.state.run.stop_epoch()

    def interrupt(self) -> None:
        """Save and end the run, so that its script continues it, as `state.interrupt` does."""
        self.state.run.interrupt("interrupted by a handler of ignite")

    def set_data(self, data: Any) -> None:
        """Refused: a run of Camshaft reads the data that it was given.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            "Engine.set_data is not taken: pass the data to engine.run, or begin another run"
        )

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take counts back while no run is under way: a run begins anew, or by `Checkpoint`.

        Raises:
            RuntimeError: A run is under way.
        """
        if self.state.run.is_running:
            raise RuntimeError(
                "load_state_dict of ignite's Engine inside of a run: to resume a run, attach "
                "camshaft's Checkpoint(..., resume=True)"
            )
        self.state.run = State()
        super().load_state_dict(state_dict)

    def begin(self) -> None:
        """Announce the start of a run.

        Raises:
            ValueError: A `BasicTimeProfiler` is attached, and the run has no `max_epochs`.
        """
        if self.state.max_epochs is None and self._is_profiled():
            raise ValueError(
                "ignite's BasicTimeProfiler makes room for all epochs when a run starts, and this "
                "run has no max_epochs: pass engine.run(..., max_epochs=...), beside max_steps "
                "where that limits the run, or attach ignite's HandlersTimeProfiler"
            )
        self.should_terminate = self.should_terminate_single_epoch = False
        self._began = self._epoch_began = time.time()
        self._fire_event(Events.STARTED)
        self.follow()  # profilers put handlers in without asking

    def _is_profiled(self) -> bool:
        handlers = self._event_handlers.get(Events.STARTED, [])
        owners = (getattr(handler, "__self__", None) for handler, _, _ in handlers)
        return any(isinstance(owner, BasicTimeProfiler) for owner in owners)

    def begin_epoch(self) -> None:
        """Announce an epoch."""
        self._epoch_began = time.time()
        self._fire_event(Events.EPOCH_STARTED)
        self._fire_event(Events.GET_BATCH_STARTED)

    def begin_iteration(self) -> None:
        """Announce that a batch was read, which ignite does not count yet; then its iteration."""
        if self.has_handlers(Events.GET_BATCH_COMPLETED):
            self.state.ahead = 1
            try:
                self._fire_event(Events.GET_BATCH_COMPLETED)
            finally:
                self.state.ahead = 0
        self._fire_event(Events.ITERATION_STARTED)

    def complete_iteration(self) -> None:
        """Announce the end of an iteration, and that another batch is read."""
        self._fire_event(Events.ITERATION_COMPLETED)
        if self.has_handlers(Events.GET_BATCH_STARTED) and not self.state.run.is_last_batch:
            self._fire_event(Events.GET_BATCH_STARTED)

    def complete_epoch(self) -> None:
        """Announce the end of an epoch."""
        times, name = self.state.times, Events.EPOCH_COMPLETED.name
        times[name] = time.time() - self._epoch_began
        if self.should_terminate_single_epoch != "skip_epoch_completed":
            self._fire_event(Events.EPOCH_COMPLETED)
            times[name] = time.time() - self._epoch_began
        self.should_terminate_single_epoch = False

    def complete(self) -> None:
        """Announce the end of the run."""
        times, name = self.state.times, Events.COMPLETED.name
        times[name] = time.time() - self._began
        if self.should_terminate:
            self._fire_event(Events.TERMINATE)
        if self.should_terminate != "skip_completed":
            self._fire_event(Events.COMPLETED)
            times[name] = time.time() - self._began

    def fail(self, error: BaseException) -> None:
        """Announce an exception, which the engine behind raises whatever the handlers do."""
        try:
            self._fire_event(Events.EXCEPTION_RAISED, error)
        except BaseException as raised:
            if raised is not error:
                raise

    def fire(self, event: Any) -> None:
        """Call the handlers of an event."""
        self._fire_event(event)


def _no_process(engine: Any, batch: Any) -> None:
    """Stands in for the process function, which the engine behind calls."""


def _is_update(handler: Any, event: Any) -> bool:
    """True for what updates a metric with each batch."""
    is_plain = not isinstance(event, CallableEventWithFilter) or event.filter is None
    owner = getattr(handler, "__self__", None)
    return is_plain and isinstance(owner, Metric) and handler.__name__ == "iteration_completed"


def _counts(engine: Any, count: int) -> bool:
    """False for a batch whose step was skipped, or that is there so that all ranks step."""
    return not engine.state.run.is_discarded

"""The ignite `Engine` that stands in front of an engine of Camshaft, and its `State`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ignite.engine
from ignite.engine import CallableEventWithFilter, EventEnum, Events
from ignite.engine.events import EventsList, RemovableEventHandle
from ignite.metrics import Metric

from ....engine import Engine, State


def _same(name: str) -> Any:
    """A property that reads and writes an attribute of the state of Camshaft's run."""

    def get(self: RunState) -> Any:
        return getattr(self.run, name)

    def put(self: RunState, value: Any) -> None:
        setattr(self.run, name, value)

    return property(get, put)


class RunState(ignite.engine.State):
    """A view of the run under way, or of the last one; attributes of one's own live beside it.

    What a handler writes into `metrics`, `max_epochs`, `max_iters` or `output` is in the run.
    """

    run: State[Any, Any]
    """The state of Camshaft's run."""

    def __init__(self) -> None:
        self.run = State()
        self.ahead = 0
        """1 while reading a batch that Camshaft has counted but ignite has not."""
        super().__init__()

    epoch: Any = _same("epoch")
    step: Any = _same("step")
    epoch_length: Any = _same("epoch_length")
    max_epochs: Any = _same("max_epochs")
    max_iters: Any = _same("max_iterations")
    batch: Any = _same("batch")
    output: Any = _same("output")
    iteration: Any = property(
        lambda self: self.run.iteration - self.ahead, lambda self, to: self._count(to)
    )
    metrics: Any = property(lambda self: self.run.metrics, lambda self, to: self._measure(to))
    dataloader: Any = property(lambda self: self.run.control.data, lambda self, to: _refuse(to))

    def _count(self, iteration: int) -> None:
        self.run.iteration = iteration

    def _measure(self, metrics: Mapping[str, Any]) -> None:
        self.run.metrics.clear()
        self.run.metrics.update(metrics)


def _refuse(data: object) -> None:
    if data is not None:
        raise AttributeError("the data of a run cannot be exchanged; pass it to engine.run")


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
        """Attach a handler, as ignite does.

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
        """Remove a handler, as ignite does."""
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

    def fire(self, event: Any, *arguments: Any) -> None:
        """Call the handlers of an event."""
        self._fire_event(event, *arguments)


def _no_process(engine: Any, batch: Any) -> None:
    """Stands in for the process function, which the engine behind calls."""


def _is_update(handler: Any, event: Any) -> bool:
    """True for the metric method that is called on each batch."""
    is_plain = not isinstance(event, CallableEventWithFilter) or event.filter is None
    owner = getattr(handler, "__self__", None)
    return is_plain and isinstance(owner, Metric) and handler.__name__ == "iteration_completed"


def _counts(engine: Any, count: int) -> bool:
    """False for a batch whose step was skipped, and for one that only keeps ranks in step."""
    return not engine.state.run.is_discarded

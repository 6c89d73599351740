"""Everything that changes during one run."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import index
from typing import TYPE_CHECKING, Any, Generic

from .. import ranks
from ..events import EventEnum, Events
from .handler_memory import HandlerMemory
from .latest_metrics import LatestMetrics
from .leaving import OF_START, dump_left, load_left
from .memory_tree import devices_of, on_devices
from .run_control import Counts, End, RunControl, StepUnderWay

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ..engine import Engine

    # `State` without type arguments means `State[Any, Any]`; the same for `Engine`.
    Batch = TypeVar("Batch", default=Any)
    Output = TypeVar("Output", default=Any)
else:
    from typing import TypeVar

    Batch = TypeVar("Batch")
    Output = TypeVar("Output")
Memory = TypeVar("Memory")

SAVED = ("iteration", "step", "epoch", "stop_reason")
# Looking a member up in its class is a Python function on 3.11; a global is not.
STEP_COMPLETED = Events.STEP_COMPLETED
ENGINE_FIRES = frozenset(Events) - {
    *(Events.BACKWARD_COMPLETED, Events.GRADIENTS_READY),
    *(STEP_COMPLETED, Events.STEP_SKIPPED),
}


@dataclass(slots=True, eq=False, weakref_slot=True, kw_only=True)
class State(Generic[Batch, Output]):
    """One run: made by `Engine.run`, handed to every handler, returned at the end.

    Read everything; change it through the methods and through `metrics`. A state made by hand is
    enough to try a handler on.

    >>> state = State(max_epochs=3)
    >>> state.stop("converged")
    >>> state.stop_reason
    'converged'
    """

    iteration: int = 0
    """Calls of the process function: 1 during the first call."""
    step: int = 0
    """Optimizer steps that were really performed."""
    epoch: int = 0
    """The epoch: 0 before the run, 1 in the first epoch."""
    max_epochs: int | None = None
    max_iterations: int | None = None
    max_steps: int | None = None
    epoch_length: int | None = None
    """Batches of an epoch: a hint, or None if unknown."""
    batch: Batch | None = field(default=None, repr=False)
    output: Output | None = field(default=None, repr=False)
    share: float = field(default=1.0, repr=False)
    """The weight of this rank's batch in a mean over ranks: 1, unless ranks have unlike numbers of
    samples. It is 0 for a batch that only keeps all ranks in step; `Update` applies it."""
    metrics: LatestMetrics = field(default_factory=LatestMetrics)
    training: bool = True
    """False in an evaluation."""
    name: str = ""
    """The name of an evaluation, such as `"val"` by `Validate`."""
    parent: State[Any, Any] | None = field(default=None, repr=False)
    """The run inside which this one happens."""
    stop_reason: str | None = None
    control: RunControl = field(default_factory=RunControl, repr=False)
    """What the loop, the data and the checkpoint need of the run."""
    step_under_way: StepUnderWay = field(default_factory=StepUnderWay, repr=False)
    """What the updates need of the run."""
    memory: HandlerMemory = field(default_factory=HandlerMemory, repr=False)
    """The memories of handlers and functions: see `recall`."""

    @property
    def engine(self) -> Engine[Any, Any]:
        """The engine that runs: its objects, handlers and evaluations.

        Raises:
            RuntimeError: No run is under way.
        """
        if self.control.engine is None:
            raise RuntimeError(
                "this state has no engine, since its run is not under way; use the engine itself, "
                "or read state.engine in a handler or in the process function"
            )
        return self.control.engine

    @property
    def is_running(self) -> bool:
        """True while an engine runs with this state."""
        return self.control.engine is not None

    @property
    def is_new(self) -> bool:
        """True before the first batch of a run that was not resumed, or has left its STARTED."""
        is_before = self.control.position is None or OF_START in self.control.left_at
        return self.iteration == 0 and is_before

    @property
    def in_epoch(self) -> bool:
        """True between EPOCH_STARTED and the end of the epoch's data."""
        return self.control.in_epoch

    @property
    def saves(self) -> list[tuple[str, object | None]]:
        """Saves asked for since the last commit point: the reason, and the handler that writes."""
        return self.control.saves

    @property
    def optimizer(self) -> Any:
        """The optimizer whose gradients are ready, or whose step was completed."""
        gradients = self.step_under_way.gradients
        return None if gradients is None else gradients.optimizer

    @property
    def error(self) -> BaseException | None:
        """The exception that ends the run, for handlers of FAILED and CLOSED."""
        return self.control.error

    @property
    def counts(self) -> Counts:
        """How often each event that counts its own occurrences was fired."""
        return self.control.counts

    @property
    def collected(self) -> dict[str, Any]:
        """By name: data that handlers gathered over an epoch, such as predictions; not saved."""
        return self.memory.collected

    @property
    def iteration_in_epoch(self) -> int:
        """The batches of this epoch that were handed to the process function."""
        return self.iteration - self.control.epoch_began

    @property
    def is_last_batch(self) -> bool:
        """True if no batch is known to follow in this epoch or in this run."""
        most = self.max_iterations
        return self.iteration - self.control.epoch_began == self.epoch_length or (
            most is not None and self.iteration >= most
        )

    @property
    def is_discarded(self) -> bool:
        """True if the batch counts for nothing: its step was skipped, or its `share` is 0."""
        return self.step_under_way.skipped_at == self.iteration or self.share == 0

    @property
    def limit_reached(self) -> str | None:
        """The name of the first limit that the run has reached, such as `"max_epochs"`."""
        counts = {
            "max_steps": self.step,  # reached inside an iteration, so before the others
            "max_epochs": self.epoch - self.control.in_epoch,
            "max_iterations": self.iteration,
        }
        for limit, count in counts.items():
            if (most := getattr(self, limit)) is not None and count >= most:
                return limit
        return None

    @property
    def end(self) -> End | None:
        """How the run ends, if it has to end now; None if it goes on."""
        asked = self.control.end
        if asked is not None and self.control.has_left:
            return End.PAUSED
        if asked is not End.FINAL and self.limit_reached is not None:
            return End.LIMIT
        return asked

    @property
    def is_interrupted(self) -> bool:
        """True if the run was stopped before its end, to be carried on later."""
        return self.end is End.PAUSED

    def stop(self, reason: str, *, resumable: bool = False) -> None:
        """End the run after the current iteration, or as soon as no accumulation window is open.

        With several ranks, all of them have to call this in the same iteration. Outside of epochs
        and at their end, one rank is enough: the ranks agree there.

        Args:
            reason: What `stop_reason` will say. The first reason stays, but a run that was only
                interrupted can still be stopped for good.
            resumable: True if the run is only interrupted: a script that resumes from its
                checkpoint continues it. The resumed run, not this one, completes the epoch and
                the run.
        """
        if not isinstance(reason, str):
            raise TypeError(f"state.stop({reason!r}): needs the reason as text")
        end = End.PAUSED if resumable else End.FINAL
        if self.control.end is None or end > self.control.end:
            self.stop_reason, self.control.end = reason, end
        self.control.has_requests = True

    def interrupt(self, reason: str) -> None:
        """Save, if a handler can, and end the run, so that its script continues it when restarted.

        Args:
            reason: What `stop_reason` and the checkpoint will say.
        """
        self.stop(reason, resumable=True)
        if self.is_running and self.engine.has_handlers(Events.SAVING):
            self.save(reason)

    def stop_epoch(self) -> None:
        """End this epoch after the current iteration; its EPOCH_COMPLETED follows."""
        if self.control.in_epoch:
            self.control.epoch_stopped = self.control.has_requests = True

    def skip_step(self) -> None:
        """Discard the current gradients: for handlers of BACKWARD_COMPLETED, on all ranks alike.

        The optimizer's step is not performed, STEP_SKIPPED takes the place of GRADIENTS_READY and
        STEP_COMPLETED, and the next batches make the next step.

        Raises:
            RuntimeError: There are no gradients to discard: this is another event.
        """
        if self.step_under_way.is_skipped is None:
            raise RuntimeError(
                "state.skip_step() has no gradients to discard here: call it in a handler of "
                "Events.BACKWARD_COMPLETED, which an Update announces before each step"
            )
        self.step_under_way.is_skipped = True

    def save(self, reason: str, *, by: object | None = None) -> None:
        """Ask for a checkpoint; it is written at the next commit point.

        A commit point comes between two iterations or epochs, after all handlers have run, and only
        while no accumulation window is open, so a checkpoint never holds half a step. Other threads
        may call this too.

        Args:
            reason: The reason that the checkpoint records.
            by: The handler that should write it; without one, all that can.
        """
        if not isinstance(reason, str):
            raise TypeError(f"state.save({reason!r}): needs the reason as text")
        if by is not None and self.control.meetings is not None:
            ranks.meet_first()  # all ranks are to ask for it, and are not compared again
        self.control.saves.append((reason, by))
        self.control.has_requests = True

    def fire(self, event: EventEnum) -> None:
        """Announce an event of your own, or an optimizer step that your code performed.

        Raises:
            ValueError: The event is announced by the engine alone.
        """
        control = self.control
        is_step = event is STEP_COMPLETED
        if is_step:
            self.step = count = self.step + 1
            self.metrics.clock = (count, self.epoch)
            if (most := self.max_steps) is not None and count >= most:
                self.stop("max_steps", resumable=True)
        elif event in ENGINE_FIRES:
            raise ValueError(f"{event!r} is fired by the engine; derive an event from EventEnum")
        else:
            control.counts[event] = count = control.counts[event] + 1
        if control.moments is not None and count >= (moment := control.moments[event]).due:
            moment.fire(self, count)
            if is_step and (most := self.max_steps) is not None and count >= most:
                self.stop("max_steps", resumable=True)  # a handler has lowered the limit

    def recall(self, owner: object, make: Callable[[], Memory], *, saved: bool = True) -> Memory:
        """The memory of `owner` in this run: made on first use, saved with the run.

        Handlers and functions serve several runs, so their memories live here. An evaluation is a
        run of its own, with new memories.

        Args:
            owner: A handler, or a function that the engine calls: its process function or a
                function attached by `on`. The key of the memory is its name in the engine.
            make: Makes an empty memory: a dataclass or dict of plain values and tensors, or an
                object with `state_dict` and `load_state_dict`. A resumed run fills it, so that it
                equals the saved one; a memory for which this is impossible is refused at the save.
            saved: False for a memory that does not belong in a checkpoint, such as an open file.

        Raises:
            TypeError: The owner has a memory of another type already.
            RuntimeError: The run is over, and there is no memory under the owner's own name.
            ValueError: The engine does not know the owner; or the saved memory of this name does
                not fit into the memory that `make` makes.
        """
        engine = self.control.engine
        if (known := self.memory.names.get(id(owner))) is not None:
            name = known
        elif engine is None:
            name = getattr(owner, "__qualname__", type(owner).__name__)
        else:
            name = engine.name_of(owner)
            if engine.handlers.get(name) is owner:  # it lives as long as the engine: its id is safe
                self.memory.names[id(owner)] = name
        memories = self.memory.saved if saved else self.memory.unsaved
        if engine is None and self.counts[Events.CLOSED] and name not in memories:
            raise RuntimeError(
                f"the run is over, so the name that {name} had in its engine is not known, and it "
                f"has no memory under its own; the memories are {sorted(memories)}. Recall it in "
                "a handler, such as one of Events.COMPLETED"
            )
        if name in memories:
            memory: Memory = memories[name]
            if isinstance(make, type) and not isinstance(memory, make):
                raise TypeError(
                    f"{name} remembers a {type(memory).__name__} in this run already, not a "
                    f"{make.__name__}: it has one memory, so put both into one dataclass"
                )
            return memory
        objects = () if engine is None else engine.objects.values()
        made: Memory = self.memory.make(name, make, saved=saved, objects=objects)
        return made

    def carry_on(
        self, max_epochs: int | None, max_iterations: int | None, max_steps: int | None
    ) -> None:
        """Prepare to run up to these limits; None leaves a limit as it was."""
        given = {"max_epochs": max_epochs, "max_iterations": max_iterations, "max_steps": max_steps}
        for name, limit in given.items():
            if limit is None:
                continue
            setattr(self, name, whole_number(name, limit))
        if self.max_epochs is None and self.max_iterations is None and self.max_steps is None:
            raise ValueError(
                "a run needs a limit: pass max_epochs=, max_iterations= or max_steps=, whichever "
                "is meant; the first one reached ends the run"
            )
        self.stop_reason = self.control.end = None
        self.control.leaves = False
        self.control.has_requests = self.control.epoch_stopped

    def _repr_html_(self) -> str:
        """What notebooks show: a table of the clocks and metrics."""
        from .state_table import state_table  # not on the way of every import

        return state_table(self)

    def state_dict(self) -> dict[str, Any]:
        """The part of this run to save besides the engine's objects, as plain values."""
        memory = self.memory.state_dict(self.engine.objects if self.is_running else None)
        return {
            **{name: getattr(self, name) for name in SAVED},
            **self.control.state_dict(),
            "metrics": self.metrics.state_dict(),
            "handlers": self.engine.attached if self.is_running else [],
            "memory": memory,
            "devices": self.memory.devices_of(memory),
            "metric_devices": devices_of(self.metrics),
            **(dump_left(self) if self.control.left_at else {}),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned; memories wait until they are recalled."""
        for name in SAVED:
            setattr(self, name, saved[name])
        self.control.load_state_dict(saved)
        if self.control.end is None:  # the resumed run is not interrupted
            self.stop_reason = None
        self.metrics.iteration, self.metrics.clock = self.iteration, (self.step, self.epoch)
        objects = self.engine.objects.values() if self.is_running else ()
        values = on_devices(saved["metrics"]["values"], saved["metric_devices"], objects)
        self.metrics.load_state_dict({**saved["metrics"], "values": values})
        self.memory.load_state_dict(saved["memory"], saved["devices"])
        if "left" in saved:
            load_left(self, saved["left"], objects)


under_way: ContextVar[State[Any, Any] | None] = ContextVar("camshaft_run", default=None)
"""The state of this thread's innermost running run."""


def whole_number(name: str, value: Any, least: int = 0) -> int:
    """An argument that counts something.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is less than `least`.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}={value!r}: needs a whole number")
    if value < least:
        needed = f"from {least}" if least else "that is not negative"
        raise ValueError(f"{name}={value}: needs a number {needed}")
    return index(value)


def whole_seed(seed: Any) -> int:
    """A seed, as a plain number; `whole_number` says what it raises."""
    return whole_number("seed", seed, least=-(2**63))  # torch's generators take none below

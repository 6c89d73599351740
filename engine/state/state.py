"""Everything that changes during one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import index
from typing import TYPE_CHECKING, Any, Generic

from ..events import EventEnum, Events
from .data_position import Position
from .handler_memory import restore, snapshot
from .latest_metrics import Readings

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ..engine import Engine
    from ..moments import Moments

    # A bare State or Engine is one of anything.
    Batch = TypeVar("Batch", default=Any)
    Output = TypeVar("Output", default=Any)
else:
    from typing import TypeVar

    Batch = TypeVar("Batch")
    Output = TypeVar("Output")
Memory = TypeVar("Memory")

SAVED = (
    *("iteration", "step", "epoch", "in_epoch", "epoch_began", "epoch_stopped"),
    *("stop_reason", "resumable"),
)
# Looking a member up in its class is a Python function on 3.11; a global is not.
STEP_COMPLETED = Events.STEP_COMPLETED
UPDATES_FIRE = {
    *(Events.BACKWARD_COMPLETED, Events.GRADIENTS_READY),
    *(STEP_COMPLETED, Events.STEP_SKIPPED),
}
ENGINE_FIRES = frozenset(Events) - UPDATES_FIRE


class Counts(dict[EventEnum, int]):
    """How often events were fired; those of a saved run are known by name until they fire again."""

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        self._loaded: dict[str, int] = {}

    def __missing__(self, event: EventEnum) -> int:
        """Nothing so far, or what was loaded."""
        if not isinstance(event, EventEnum):
            raise TypeError(
                f"state.fire({event!r}): needs an event of your own, a member of a class derived "
                "from EventEnum"
            )
        self[event] = count = self._loaded.pop(repr(event), 0)
        return count

    def state_dict(self) -> dict[str, int]:
        """The counts, by the events' names."""
        return self._loaded | {repr(event): count for event, count in self.items()}

    def load_state_dict(self, saved: dict[str, int]) -> None:
        """Go on from saved counts."""
        self.clear()
        self._loaded = dict(saved)


@dataclass(slots=True, eq=False, weakref_slot=True)
class State(Generic[Batch, Output]):
    """One run: made by `Engine.run`, handed to every handler, returned at the end.

    Read everything; change it through the methods, through `metrics`, and in handlers of one's
    own that know what they do. A state made by hand is enough to try a handler on.

    >>> state = State(max_epochs=3)
    >>> state.stop("converged")
    >>> state.stop_reason
    'converged'
    """

    iteration: int = 0
    """Calls of the process function, from 1 in the first one."""
    step: int = 0
    """Optimizer steps that were really performed."""
    epoch: int = 0
    """From 1 once running."""
    max_epochs: int | None = None
    max_iterations: int | None = None
    max_steps: int | None = None
    epoch_length: int | None = None
    """Batches of an epoch: a hint, or None if it is not known."""
    batch: Batch | None = field(default=None, repr=False)
    output: Output | None = field(default=None, repr=False)
    metrics: Readings = field(default_factory=Readings)
    collected: dict[str, Any] = field(default_factory=dict, repr=False)
    """What handlers gathered of a whole epoch, such as predictions, by name; not saved."""
    training: bool = True
    name: str = ""
    """What an evaluation is called, such as `"val"` by `Validate`."""
    parent: State[Any, Any] | None = field(default=None, repr=False)
    """The run inside which this one happens."""
    optimizer: Any = field(default=None, repr=False)
    """The optimizer whose gradients are ready or whose step was completed."""
    skipping: bool = field(default=False, repr=False)
    """True if a handler has asked to discard the gradients at hand."""
    skipped_at: int = field(default=-1, repr=False)
    """The last iteration in which a step was skipped."""
    stop_reason: str | None = None
    resumable: bool = True
    """False once a handler has decided that the run is over for good."""
    error: BaseException | None = field(default=None, repr=False)
    """What ends the run, for the handlers of FAILED and CLOSED."""
    counts: Counts = field(default_factory=Counts, repr=False)
    """How often each event that counts its own occurrences was fired."""
    saves: list[tuple[str, object | None]] = field(default_factory=list, repr=False)
    """The saves asked for since the last commit point: reasons, and who should write."""
    windows: dict[int, Any] = field(default_factory=dict, repr=False)
    """The accumulation windows that are open, by the id of their `Update`; `close(state)` steps."""
    memory: dict[str, Any] = field(default_factory=dict, repr=False)
    """What the handlers remember, by their names: see `recall`."""
    resources: dict[str, Any] = field(default_factory=dict, repr=False)
    """What handlers hold that has no place in a checkpoint, such as open files."""
    loaded: dict[str, Any] = field(default_factory=dict, repr=False)
    """What a saved run's handlers remembered and nobody has recalled so far."""
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    """What the script that began this run had set in its optimizers and schedules, by name."""
    position: Position | None = field(default=None, repr=False)
    """Where in the data the run is."""
    engine: Engine[Batch, Output] | None = field(default=None, repr=False)
    """The engine, while it runs."""
    moments: Moments | None = field(default=None, repr=False)
    """The handlers of this run by event, while it runs."""

    in_epoch: bool = field(default=False, repr=False)
    """True between EPOCH_STARTED and the end of the epoch's data."""
    epoch_began: int = field(default=0, repr=False)
    """The iteration before the first one of this epoch."""
    epoch_stopped: bool = field(default=False, repr=False)
    """True once `stop_epoch` was called in this epoch."""
    attention: bool = field(default=False, repr=False)
    """True if something waits for the next commit point."""

    @property
    def iteration_in_epoch(self) -> int:
        """The batches of this epoch that were handed to the process function."""
        return self.iteration - self.epoch_began

    @property
    def is_last_batch(self) -> bool:
        """True if no batch is known to follow in this epoch or in this run."""
        return self.iteration_in_epoch == self.epoch_length or self.iteration == self.max_iterations

    @property
    def is_discarded(self) -> bool:
        """True if the step of this iteration was skipped, so that its batch counts for nothing."""
        return self.skipped_at == self.iteration

    @property
    def limit_reached(self) -> str | None:
        """The name of the first limit that the run has reached, such as `"max_epochs"`."""
        counts = {
            "max_epochs": self.epoch - self.in_epoch,
            "max_iterations": self.iteration,
            "max_steps": self.step,
        }
        for limit, count in counts.items():
            if (most := getattr(self, limit)) is not None and count >= most:
                return limit
        return None

    @property
    def is_interrupted(self) -> bool:
        """True if the run was stopped before its end, to be carried on later."""
        return self.stop_reason is not None and self.resumable and self.limit_reached is None

    def stop(self, reason: str, *, resumable: bool = False) -> None:
        """End the run after the current iteration, or as soon as no accumulation window is open.

        Args:
            reason: What `stop_reason` will say. The first reason stays, but a run that was only
                interrupted can still be stopped for good.
            resumable: True if the run is only interrupted: a script that resumes from its
                checkpoint then goes on, where it otherwise says that the run is over. What is due
                at the end of the epoch or of the run is left to that run.
        """
        if self.stop_reason is None or (self.resumable and not resumable):
            self.stop_reason, self.resumable = reason, resumable
        self.attention = True

    def interrupt(self, reason: str) -> None:
        """Save, if anything can, and end the run, so that its script goes on when started again.

        Args:
            reason: What `stop_reason` and the checkpoint will say.
        """
        self.stop(reason, resumable=True)
        if self.engine is not None and self.engine.signal(Events.SAVING).receivers:
            self.save(reason)

    def stop_epoch(self) -> None:
        """End this epoch after the current iteration; its EPOCH_COMPLETED follows."""
        if self.in_epoch:
            self.epoch_stopped = self.attention = True

    def skip_step(self) -> None:
        """Discard the gradients at hand: for handlers of BACKWARD_COMPLETED, the same on all ranks.

        The optimizer's step is not performed, STEP_SKIPPED takes the place of GRADIENTS_READY and
        STEP_COMPLETED, and the next batches make the next step.
        """
        self.skipping = True

    def save(self, reason: str, *, by: object | None = None) -> None:
        """Ask for a checkpoint; it is written at the next commit point.

        That is between two iterations or epochs, when all handlers of the moment have run and no
        accumulation window is open, so a checkpoint never holds half a step. Other threads may ask
        too.

        Args:
            reason: What the checkpoint says of why it is there.
            by: The handler that should write it; without one, all that can.
        """
        self.saves.append((reason, by))
        self.attention = True

    def fire(self, event: EventEnum) -> None:
        """Announce an event of one's own, or that one performed an optimizer step oneself.

        Raises:
            ValueError: The event is announced by the engine alone.
        """
        if event is STEP_COMPLETED:
            self.step = count = self.step + 1
            if count == self.max_steps:
                self.stop("max_steps", resumable=True)
        elif event in ENGINE_FIRES:
            raise ValueError(f"{event!r} is fired by the engine; derive an event from EventEnum")
        else:
            self.counts[event] = count = self.counts[event] + 1
        if self.moments is not None and count >= (moment := self.moments[event]).due:
            moment.fire(self, count)

    def recall(self, handler: object, make: Callable[[], Memory], *, saved: bool = True) -> Memory:
        """What `handler` remembers in this run: made on first use, saved with the run.

        A handler is a plain value that several runs may share; what it remembers lives here.

        Args:
            handler: Who remembers; its name in the engine is the key.
            make: Makes an empty memory: a dataclass or dict of plain values and tensors, or an
                object with `state_dict` and `load_state_dict`.
            saved: False for what has no place in a checkpoint, such as an open file.

        Raises:
            ValueError: What was saved under this name does not fit into what `make` makes.
        """
        name = type(handler).__name__ if self.engine is None else self.engine.name_of(handler)
        memories = self.memory if saved else self.resources
        if name not in memories:
            made = make()
            if saved and name in self.loaded:
                self._restore(name, made)
            memories[name] = made
        memory: Memory = memories[name]
        return memory

    def carry_on(
        self, max_epochs: int | None, max_iterations: int | None, max_steps: int | None
    ) -> None:
        """Make ready to run, up to these limits, or up to those of before where None is given.

        Raises:
            TypeError: A limit is no whole number.
            ValueError: A limit is negative, or there is none at all.
        """
        given = {"max_epochs": max_epochs, "max_iterations": max_iterations, "max_steps": max_steps}
        for name, limit in given.items():
            if limit is None:
                continue
            if isinstance(limit, bool) or not hasattr(limit, "__index__"):
                raise TypeError(f"{name}={limit!r}: needs a whole number")
            if limit < 0:
                raise ValueError(f"{name}={limit}: needs a number that is not negative")
            setattr(self, name, index(limit))
        if self.max_epochs is None and self.max_iterations is None and self.max_steps is None:
            raise ValueError(
                "a run needs a limit: pass max_epochs=, max_iterations= or max_steps=, whichever "
                "is meant; the first one reached ends the run"
            )
        self.stop_reason, self.resumable, self.attention = None, True, self.epoch_stopped

    def state_dict(self) -> dict[str, Any]:
        """What of this run has to be saved besides the engine's objects, as plain values."""
        saved = {name: getattr(self, name) for name in SAVED}
        saved["metrics"] = self.metrics.state_dict()
        saved["counts"] = self.counts.state_dict()
        saved["position"] = None if self.position is None else self.position.state_dict()
        saved["settings"] = dict(self.settings)
        saved["handlers"] = [] if self.engine is None else self.engine.attached
        saved["memory"] = self.loaded | {
            name: self._remembered(name, memory) for name, memory in self.memory.items()
        }
        return saved

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave; what handlers remembered waits for `recall`."""
        for name in SAVED:
            setattr(self, name, saved[name])
        if self.resumable:
            self.stop_reason = None
        self.attention = self.epoch_stopped
        self.metrics.load_state_dict(saved["metrics"])
        self.metrics.iteration = self.iteration
        self.counts.load_state_dict(saved["counts"])
        self.position = None if saved["position"] is None else Position.of(saved["position"])
        self.settings = dict(saved["settings"])
        self.memory.clear()
        self.loaded = dict(saved["memory"])

    def _remembered(self, name: str, memory: Any) -> Any:
        try:
            return snapshot(memory)
        except TypeError as error:
            raise TypeError(f"what {name} remembers cannot be saved: {error}") from error

    def _restore(self, name: str, memory: Any) -> None:
        try:
            restore(memory, self.loaded[name])
        except ValueError as error:
            raise ValueError(
                f"what {name} remembered does not fit what it remembers now: {error}. Resume "
                "with the code that saved it, or let it begin anew: "
                f"Checkpoint(..., override=[{name!r}])"
            ) from error
        del self.loaded[name]

"""The engine: one process function and the handlers wired to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from . import inspection, modules, ranks
from .changes import generators_of_run, script_functions
from .checks import no_handler, objects_of, refuse_other_process, refuse_samples, warn
from .data import Feed, ForwardAlong, InStep, shortest
from .events import EventEnum, Stage, Trigger
from .loop import Loop
from .moments import Moments
from .names import OF_ENGINES, unknown
from .signals import (
    Attached,
    Process,
    Signal,
    Signals,
    Subscription,
    Watch,
    check_arity,
    is_defined_again,
    is_of_a_cell,
    is_same,
    label,
)
from .state import Batch, Left, Output, State, must_leave, under_way, whole_number

logger: logging.Logger = logging.getLogger("camshaft")

OF_EVALUATIONS = (
    "An evaluation sums over the ranks: call it on all of them, or, where one rank is to evaluate "
    "all of the data by itself, inside `with ranks.alone():`"
)

Result = TypeVar("Result")
Found = TypeVar("Found")


class Handler(Protocol):
    """An object that attaches itself to an engine, mostly by one or two calls of `engine.on`.

    A handler is a plain value: its memory of a run lives in the state, see `State.recall`. A
    handler with an attribute `only_on_rank` is attached on that rank only; with None on each, and
    other ranks may lack it.
    """

    def attach(self, engine: Engine[Any, Any], /) -> None:
        """Connect to the events of `engine`."""


class Engine(Generic[Batch, Output]):
    """Calls a process function once a batch and announces events; holds no run.

    Everything that changes during a run lives in the `State` that `run` makes, hands to every
    call and returns. So an engine can run inside its own handler.

    >>> from camshaft import Events
    >>> trainer = Engine(lambda state, batch: 2 * batch)
    >>> @trainer.on(Events.ITERATION_COMPLETED(every=2))
    ... def report(state):
    ...     print(state.iteration, state.output)
    >>> state = trainer.run([1, 2, 3, 4], max_epochs=1)
    2 4
    4 8
    >>> state.stop_reason
    'max_epochs'
    """

    def __init__(
        self,
        process: Process[Batch, Output],
        *handlers: Handler,
        evaluate: Process[Batch, Output] | None = None,
        objects: Mapping[str, Any] | None = None,
    ) -> None:
        """Wire an engine.

        Args:
            process: Called as `process(state, batch)`; what it returns is `state.output`.
            handlers: Attached in this order, like by `add`.
            evaluate: The process function of `evaluate`; without one it is `process`, which
                can look at `state.training`.
            objects: What has `state_dict` and `load_state_dict`, by name: models, optimizers.
                Checkpoints hold all of them; evaluation leaves the modules among them untouched.

        Raises:
            TypeError: A process function cannot be called with a state and a batch, or an object
                has no `state_dict` and `load_state_dict`.
        """
        refuse_other_process(process)
        check_arity(process, 2, "an engine's process", "the state and a batch")
        if evaluate is not None:
            check_arity(evaluate, 2, "an engine's evaluation", "the state and a batch")
        self.process = process
        self.objects: dict[str, Any] = objects_of(objects)
        self.signals: Signals = Signals()
        # Replaces the process function in `simulate`: it only fires the same events.
        self.rehearsal: Process[Batch, Any] | None = None
        # Called in training instead of the process function: with it, the state and the batch.
        self.around: Callable[[Process[Batch, Output], State[Any, Any], Any], Any] | None = None
        # By module: the tensors with its own weights, while it holds another's by `using`.
        self.lent: dict[Any, dict[str, Any]] = {}
        self._evaluate = evaluate
        self._know(Attached())
        self._is_evaluation = False
        self._local = False
        """True while a handler attaches itself that other ranks may lack."""
        self._attached.know(process, "engine.process")
        if evaluate is not None:
            self._attached.know(evaluate, "engine.evaluate")
        self.add(*handlers)

    if not TYPE_CHECKING:  # type checkers report wrong names themselves

        def __getattr__(self, name: str) -> Any:
            """Raise an error with the attribute that was probably meant."""
            if hasattr(type(self), name):  # a property that has raised its own error
                return object.__getattribute__(self, name)
            raise unknown("an Engine", name, dir(self), OF_ENGINES)

    def add(self, *handlers: Handler) -> Self:
        """Attach handlers, in this order; return the engine.

        Raises:
            TypeError: One of them is no handler.
            ValueError: One of them is attached already, or attaches itself to evaluations and was
                given to `engine.evaluation`.
        """
        for handler in handlers:
            if isinstance(handler, type) or not hasattr(handler, "attach"):
                raise no_handler(handler)
            if (name := self._attached.by_id.get(id(handler))) is not None:
                raise ValueError(f"{name} is attached already")
            if getattr(handler, "only_on_rank", None) in (None, ranks.rank()):
                twin = self._attached.twin_of(handler)
                self._attach(handler)
                if twin is not None:
                    warn(
                        f"{twin} is attached already, and now another one with the same settings: "
                        "both will be called. If a notebook's cell was run again, make the engine "
                        "in that cell too"
                    )
        return self

    def on(
        self, when: EventEnum | Trigger, *, stage: Stage = Stage.ACT
    ) -> Callable[
        [Callable[[State[Batch, Output]], Result]], Callable[[State[Batch, Output]], Result]
    ]:
        """Decorate a function to be called with the state of the run when the trigger fires.

        A function that is attached twice to the same trigger is called once. If a notebook's cell
        runs again and redefines the function, the new function replaces the earlier one.

        Raises:
            TypeError: `when` is no event or trigger, or the function does not take one argument.
        """
        trigger = Trigger.of(when)
        if not isinstance(stage, Stage):
            raise TypeError(f"stage={stage!r}: needs Stage.MEASURE, Stage.ACT or Stage.REPORT")
        for clause in trigger.clauses:
            if clause.where is not None:
                check_arity(clause.where, 1, f"where= of {clause.event!r}", "the state")

        def attach(
            function: Callable[[State[Batch, Output]], Result],
        ) -> Callable[[State[Batch, Output]], Result]:
            check_arity(function, 1, repr(trigger), "the state")
            if (earlier := self._attached_earlier(function, trigger, stage)) is not None:
                self._attached.know(function, f"{earlier.name}()")
                # It keeps its place in the order, and the name of its memory.
                earlier.function, earlier.trigger, earlier.stage = function, trigger, stage
                for event in trigger.events:
                    self.signals[event].changed()
                return function
            owner = self._attached.by_id.get(id(getattr(function, "__self__", None)))
            name = f"{owner}.{function.__name__}" if owner else label(function)
            name = self._attached.free(name, of_a_handler=owner is not None)
            self._attached.know(function, f"{name}()")
            local = self._local or owner in self._attached.local  # also in `evaluation`
            subscription = Subscription(function, trigger, stage, name, local, owner or "")
            for event in trigger.events:
                self.signals[event].connect(subscription)
            return function

        return attach

    def _attached_earlier(
        self, function: Callable[..., Any], trigger: Trigger, stage: Stage
    ) -> Subscription | None:
        """The subscription of this function, or of its earlier definition, to the same trigger."""
        is_new = is_of_a_cell(function)
        if self._attached.function_name(function) is None and not is_new:
            return None  # without a search through all subscriptions
        any_event = next(iter(trigger.events))  # an equal trigger has all of them
        for each in self.signals[any_event].subscriptions:
            is_alike = each.trigger == trigger and each.stage is stage
            if is_alike and is_same(each.function, function):
                warn(
                    f"{each.name} is attached to {trigger!r} already, and is called once all the "
                    "same; leave one of the two lines out"
                )
                return each
            # By repr: where=lambda ... is a new function each time the cell runs.
            is_like = is_new and repr(each.trigger) == repr(trigger)
            if is_like and is_defined_again(function, each.function):
                logger.warning(
                    "%s on %r takes the place of the function of this name that an earlier run of "
                    "the cell attached",
                    *(each.name, trigger),
                )
                return each
        return None

    def off(self, function: Callable[[State[Batch, Output]], object]) -> None:
        """Detach `function` from all events, also of evaluations.

        Raises:
            ValueError: It is not attached.
        """
        engines = [self, *filter(None, [vars(self).get("evaluation")])]
        signals = [signal for each in engines for signal in each.signals.values()]
        attached = [each for signal in signals for each in signal.receivers.values()]
        if not any(is_same(getattr(each, "function", each), function) for each in attached):
            raise ValueError(
                f"engine.off({label(function)}): it is not attached; give the function that "
                "engine.on got, and of a handler the method of the very object"
            )
        for signal in signals:
            signal.disconnect(function)

    def signal(self, event: EventEnum) -> Signal:
        """The blinker signal of an event, for code that uses blinker; the sender is the state.

        Raises:
            TypeError: It is no event.
        """
        if not isinstance(event, EventEnum):
            Trigger.of(event)  # which says what it needs
            raise TypeError(f"engine.signal({event!r}): needs an event without conditions")
        return self.signals[event]

    def has_handlers(self, event: EventEnum) -> bool:
        """True if anything is attached to the event."""
        return event in self.signals and bool(self.signals[event].receivers)

    def find(self, kind: type[Found]) -> list[Found]:
        """The attached handlers of a class, in their order."""
        return [each for each in self.handlers.values() if isinstance(each, kind)]

    def name_of(self, owner: object) -> str:
        """The name of an attached handler: unique, and the same whenever the script runs.

        For a function, which is the process function or one attached by `on`, it is the name of
        its memory, see `State.recall`.

        Raises:
            ValueError: It is not attached to this engine.
        """
        if isinstance(owner, Subscription):
            return owner.name
        name = self._attached.by_id.get(id(owner)) or self._attached.function_name(owner)
        if name is not None:
            return name
        raise ValueError(
            f"{owner!r} is not attached to this engine: engine.add(...) it, if it is a handler; a "
            "function needs to be the engine's process function, or attached by engine.on, and a "
            "method remembers as that method, such as self.step"
        )

    @cached_property
    def evaluation(self) -> Engine[Batch, Output]:
        """The engine that `evaluate` runs: the same objects, but handlers of its own."""
        engine = self._like(self._evaluate or self.process)
        engine._is_evaluation = True
        return engine

    def bare(self, keep: Callable[[Subscription], bool]) -> Engine[Batch, Output]:
        """An engine with the same process functions that calls only some of the handlers.

        With the same objects and names too, a trial run makes the same steps without logs or
        checkpoints. Handlers attached later to one of the two are not attached to the other.

        >>> from camshaft import Events
        >>> engine = Engine(lambda state, batch: batch)
        >>> @engine.on(Events.COMPLETED)
        ... def report(state):
        ...     print("completed")
        >>> engine.bare(lambda subscription: False).run([1], max_epochs=1).output
        1

        Args:
            keep: Returns True for the subscriptions, made by `on`, that the new engine keeps.
        """
        bare = self._like(self.process)
        bare._evaluate = self._evaluate
        bare._know(self._attached.copy())
        for event, signal in self.signals.items():
            for each in filter(keep, signal.subscriptions):
                bare.signals[event].connect(each)
        return bare

    def run(
        self,
        data: Iterable[Batch],
        *,
        max_epochs: int | None = None,
        max_iterations: int | None = None,
        max_steps: int | None = None,
        epoch_length: int | None = None,
        max_batches: int | None = None,
        uneven: str = "stop",
        state: State[Batch, Output] | None = None,
        parent: State[Any, Any] | None = None,
    ) -> State[Batch, Output]:
        """Run until the first of the limits, or until a handler stops the run; return its state.

        ```
        LOADING                                   a saved state is put back
        STARTED
        while not done:
            EPOCH_STARTED
            for batch in data:
                ITERATION_STARTED
                output = process(state, batch)    GRADIENTS_READY, STEP_COMPLETED
                ITERATION_COMPLETED
                commit point                      SAVING, if asked for
            EPOCH_COMPLETED
            commit point
        COMPLETED                                 or FAILED, and the exception is re-raised;
                                                  neither, if a resumable stop interrupted the run
        CLOSED
        ```

        Args:
            data: The batches. The end of an iterable ends an epoch; the end of an iterator, which
                cannot begin again, ends the run.
            max_epochs: Passes over the data, or over `epoch_length` batches.
            max_iterations: Calls of the process function.
            max_steps: Optimizer steps that were really performed.
            epoch_length: Batches of a virtual epoch, whose iterator carries on over epochs.
            max_batches: For trials: each pass over data, in this run and in the evaluations and
                runs inside it, ends after this many batches. A resumed run needs the same number.
            uneven: What to do if ranks have different numbers of batches: `"stop"` ends each epoch
                on all ranks when the first rank has no more batches, and `"error"` raises. If a
                rank does not know its number, the ranks ask one another before each batch.
                `"ignore"` does not ask: for equal numbers, and for runs of one rank alone.
            state: A run to continue, with its limits unless others are given here.
            parent: The run that contains this one.

        Raises:
            RuntimeError: The process function makes steps that it does not announce, and handlers
                wait for them.
            TypeError: A limit is not an integer, or the data gives samples instead of batches.
            ValueError: There is no limit, a limit is negative, or the data gives no batch.
        """
        refuse_samples(data)
        outer = under_way.get()
        if outer is not None and outer.engine is self and state is None and parent is None:
            raise RuntimeError(
                "this engine is running, and would run again inside of itself, without an end. To "
                "validate, write engine.evaluate(loader), or add Validate(loader); to train inside "
                "of a run on purpose, make another engine, or pass parent=state"
            )
        if state is None:
            state = State(parent=parent)
        if state.is_running:
            raise RuntimeError(
                "this state is of a run under way; leave state= out to run inside it, and say so "
                "with parent=state"
            )
        state.carry_on(max_epochs, max_iterations, max_steps)
        if epoch_length is not None:
            epoch_length = whole_number("epoch_length", epoch_length, least=1)
        state.control.epoch_length = epoch_length
        state.control.outer = outer
        limit = shortest(epoch_length, _limit_batches(state, max_batches))
        feed = Feed(data, state, limit, repeats=epoch_length is not None, in_step=InStep(uneven))
        return Loop(self, self.process, Moments(self.signals), state, feed).run()

    def evaluate(
        self,
        data: Iterable[Batch],
        *,
        epoch_length: int | None = None,
        weights: str | Mapping[str, str] | None = None,
        checkpoint: str | PathLike[str] | None = None,
        seed: int | None = None,
        name: str = "",
        parent: State[Any, Any] | None = None,
    ) -> State[Batch, Output]:
        """Run one epoch of evaluation over `data`, or over at most `epoch_length` batches of it.

        The process function sees `state.training` False; the modules in `objects` are in
        evaluation mode and no gradient is recorded. Afterwards everything is as it was, random
        number generators and each module's own mode included; also after an exception.

        Args:
            data: The batches. Samples that a `DistributedSampler` repeats to even out the ranks are
                left out, so each sample counts once.
            epoch_length: The most batches to evaluate.
            weights: The object whose weights to evaluate, such as `"ema"`: see `using`.
            checkpoint: The saved weights to evaluate: `"latest"` or `"best"` of the attached
                `Checkpoint`, or the path of a checkpoint, an export or a directory of them. The
                modules in `objects` hold these weights during the evaluation.
            seed: The seed of the evaluation's random numbers, which are then the same each time.
                Without it, they depend on the generator states that the training has reached.
            name: The value of `state.name`, for handlers that see several evaluations.
            parent: The run that contains this one.
        """
        state: State[Batch, Output] = State(training=False, max_epochs=1, name=name, parent=parent)
        refuse_samples(data)
        state.control.outer = outer = under_way.get()
        if epoch_length is not None:
            epoch_length = whole_number("epoch_length", epoch_length, least=1)
        limit = shortest(epoch_length, _limit_batches(state, None))
        engine = self.evaluation
        if outer is None:
            modules.warn_of_unloaded(self, checkpoint)
        saved = nullcontext() if checkpoint is None else modules.holding_saved(self, checkpoint)
        lent = self.using(weights) if weights else nullcontext()
        functions = script_functions(engine.process, engine.signals)
        drawn_from = generators_of_run(self.objects, functions, data)
        untouched = modules.untouched(self.objects, data, seed, drawn_from)
        meets: AbstractContextManager[None] = nullcontext()
        if ranks.is_distributed() and ranks.world_size() > 1:
            meetings = ranks.Meetings.outside() if outer is None else outer.control.meetings
            where = "outside of a run" if outer is None else f"in iteration {outer.iteration}"
            if meetings is not None:
                meets = meetings.first(f"evaluates {where}", OF_EVALUATIONS)
        with untouched, modules.evaluating(self), saved, lent, meets:
            sharded = modules.fully_sharded(self.objects.values()) if ranks.is_distributed() else []
            in_step = ForwardAlong(partial(_repeat, engine, state)) if sharded else InStep()
            feed = Feed(data, state, limit, in_step=in_step, named=drawn_from)
            try:
                if must_leave(state):
                    raise Left
                Loop(engine, engine.process, Moments(engine.signals), state, feed).run()
            finally:
                for each in sharded:
                    each.reshard()  # its parameters are the optimizer's again
        if state.control.leaves and state.is_interrupted:
            raise Left
        return state

    def using(self, weights: str | Mapping[str, str]) -> AbstractContextManager[None]:
        """Within a `with` block, let a module of `objects` hold the weights of another module.

        A checkpoint that is written inside holds each module's own weights. Do not train inside:
        afterwards, the module has its earlier weights again.

        Args:
            weights: The name of the object whose weights `"model"` takes, such as `"ema"`; or a
                mapping from the taking to the giving object: `{"generator": "generator_ema"}`.

        Raises:
            ValueError: There is no such object, or its weights have other names or shapes.
        """
        return modules.using(weights, self.objects, self.lent)

    def describe(self, *, all: bool = False) -> inspection.Description:
        """When your functions and the handlers are called in a run, and in which order.

        Print it, with or without rich, or look at its picture: `engine.describe().svg()`; at the
        end of a notebook's cell, an engine shows it itself.

        Args:
            all: True to show also the calls by which handlers begin, count, check and end.
        """
        evaluation = vars(self).get("evaluation")  # without making it
        rows_of = inspection.RunRows.of
        runs = [rows_of(self.process, self.signals, training=True)]
        if evaluation is not None:
            runs.append(rows_of(evaluation.process, evaluation.signals, training=False))
        return inspection.Description(tuple(runs), all)

    def _repr_svg_(self) -> str:
        """The picture of `describe`, for notebooks."""
        return self.describe().svg()

    def simulate(
        self,
        *,
        max_epochs: int,
        epoch_length: int,
        process: Process[Batch, Any] | None = None,
    ) -> inspection.Trace:
        """List what a run would call, without a model: no handler and no process is called.

        Conditions on counts are known beforehand and `where=` is taken to be true; `seconds=` is
        left out, and so is what a handler would do, such as stopping the run or saving.

        Args:
            max_epochs: Epochs to go through.
            epoch_length: Batches of each.
            process: Replaces the process function: it fires the same events.
        """
        process = process or self.rehearsal
        return inspection.rehearse(self, self.signals, process, max_epochs, epoch_length)

    def record(
        self, *events: EventEnum, last: int | None = None
    ) -> AbstractContextManager[inspection.Trace]:
        """Within a `with` block, list the calls of handlers, in their order, with the clocks.

        Handlers of evaluations are listed too. Without a recording, there is no cost.

        >>> from camshaft import Events
        >>> engine = Engine(lambda state, batch: None)
        >>> @engine.on(Events.EPOCH_COMPLETED(every=2))
        ... def report(state):
        ...     pass
        >>> with engine.record() as trace:
        ...     state = engine.run("abc", max_epochs=3)
        >>> print(trace)
        epoch 2, iteration 6
          Events.EPOCH_COMPLETED  report
        >>> trace == engine.simulate(max_epochs=3, epoch_length=3)
        True

        Args:
            events: List only calls in these events; by default in all.
            last: Keep only this many latest calls; by default all.
        """
        return inspection.record(self.signals, self.evaluation.signals, events=events, last=last)

    def watching(self, watch: Watch) -> AbstractContextManager[None]:
        """Within a `with` block, replace each handler by the function that `watch` returns for it.

        The replacement is `watch(event, receiver, function)`, also for handlers of evaluations:
        profilers see calls in this way. Without a watch, there is no cost.
        """
        return inspection.watching(watch, self.signals, self.evaluation.signals)

    def _like(self, process: Process[Batch, Output]) -> Engine[Batch, Output]:
        """An engine of the same objects, handlers and names, which calls none of the handlers."""
        like = Engine(process)
        like.objects, like.lent = self.objects, self.lent
        like._know(self._attached)
        return like

    def _know(self, attached: Attached[Handler]) -> None:
        self._attached = attached
        self.handlers: dict[str, Handler] = attached.handlers
        """The attached handlers, by their names."""
        self.local: set[str] = attached.local
        """The names of the handlers that other ranks may lack, such as those of `on_rank`."""
        self.known: set[str] = attached.known
        """The names of all handlers, of their methods, and of what functions remember."""
        self.attached: list[str] = attached.names
        """The names of all handlers, and of functions attached by `on` that are not theirs."""

    def _attachments(self) -> int:
        return sum(len(signal.receivers) for signal in self.signals.values())

    def _attach(self, handler: Handler) -> None:
        """Name a handler after its class and its metric, name or object, and attach it."""
        outer, self._local = self._local, self._local or hasattr(handler, "only_on_rank")
        self._attached.hold(handler, self._local)
        before = self._attachments()
        try:
            handler.attach(self)
            if self._is_evaluation and self._attachments() == before and self.evaluation.signals:
                raise ValueError(
                    f"{self.name_of(handler)} attaches itself to evaluations, and nothing calls it "
                    f"on engine.evaluation: write engine.add({type(handler).__name__}(...))"
                )
        except BaseException:
            self._attached.release(handler)
            raise
        finally:
            self._local = outer


@dataclass(frozen=True, eq=False)
class on_rank:  # noqa: N801  # reads as the declaration it is
    """A handler that is attached on one rank only, such as a handler that writes files.

    It must not take part in collectives.

    Raises:
        ValueError: `only_on_rank` is no whole number from 0.

    >>> from camshaft.handlers import JSONLines
    >>> on_rank(0, JSONLines("runs/rows.jsonl")).only_on_rank
    0
    """

    only_on_rank: int
    handler: Handler

    def __post_init__(self) -> None:
        if type(self.only_on_rank) is not int or self.only_on_rank < 0:
            raise ValueError(f"on_rank({self.only_on_rank!r}, ...): needs the number of a rank")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Attach the handler; `Engine.add` calls this on its rank only."""
        engine.add(self.handler)


def _repeat(engine: Engine[Batch, Any], state: State[Any, Any], batch: Batch) -> None:
    """Process a batch of an evaluation once more, for the other ranks: no handler is called."""
    again: State[Batch, Any] = State(training=False, parent=state)
    engine.bare(lambda _: False).run([batch], max_epochs=1, uneven="ignore", state=again)


def _limit_batches(state: State[Any, Any], given: int | None) -> int | None:
    """Give a run its `max_batches`, the given number or that of the run around it; return it."""
    if given is not None:
        given = whole_number("max_batches", given, least=1)
        logger.warning(
            "max_batches=%d: each pass over data, in training and in evaluation, ends after so "
            "many batches; leave it out for a run that counts",
            given,
        )
    elif state.control.outer is not None:
        given = state.control.outer.control.max_batches
    state.control.max_batches = given
    return given

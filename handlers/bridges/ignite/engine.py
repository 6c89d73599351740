"""ignite's `Engine`, running on Camshaft's loop."""

from __future__ import annotations

import functools
import logging
import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Self, cast

import ignite.engine
from ignite.engine import Events, State

from ....engine import Engine as NativeEngine
from ....engine import Handler
from ....engine import State as NativeState
from ....engine.inspection import Description
from .description import describe, numbers
from .memory import HandlerStates
from .run import Run

logger: logging.Logger = logging.getLogger("camshaft")

PLACE = "camshaft"
"""The key of `Engine.state_dict` under which the place in the data is saved."""


class Engine(ignite.engine.Engine):
    """ignite's `Engine`: the same API and order of events, on the loop of Camshaft.

    Handlers, metrics and loggers of ignite attach to it as to ignite's own, and handlers of
    Camshaft by `add`. In each event those of ignite are called first.

    >>> trainer = Engine(lambda engine, batch: 2 * batch)
    >>> @trainer.on(Events.ITERATION_COMPLETED(every=2))
    ... def report(engine):
    ...     print(engine.state.iteration, engine.state.output)
    >>> state = trainer.run([1, 2, 3, 4], max_epochs=1)
    2 4
    4 8
    """

    def __init__(
        self,
        process_function: Callable[[Any, Any], Any],
        *,
        objects: Mapping[str, Any] | None = None,
        exact: bool = False,
    ) -> None:
        """Make an engine, as ignite does.

        Args:
            process_function: Called as `process_function(engine, batch)`.
            objects: What Camshaft's checkpoints save: models, optimizers, schedulers, by name.
            exact: Where ignite's engine loses or repeats something, go on exactly instead: `run`
                continues in the middle of an epoch with the next batch, also after `terminate` or
                an exception and after `load_state_dict`; an exception is raised when the handlers
                of EXCEPTION_RAISED have seen it.
        """
        super().__init__(process_function)
        self.exact = exact
        self.native: NativeEngine[Any, Any] = NativeEngine(process_function, objects=objects)
        """The engine of Camshaft, for calls that this class does not forward."""
        self._own = (weakref.ref(self),)
        """The arguments of a handler that takes the engine alone."""
        self._handler_states = HandlerStates(self)
        self.native.add(self._handler_states)
        self._native_state: NativeState[Any, Any] | None = None
        self._run: Run | None = None
        self._seen: int | None = None
        self._warned: set[str] = set()

    @property
    def objects(self) -> dict[str, Any]:
        """What Camshaft's checkpoints save, by name; more may be put in before the run."""
        return self.native.objects

    def add(self, *handlers: Handler) -> Self:
        """Attach handlers of Camshaft, such as `Checkpoint` or `StopOnSignal`; return the engine.

        They get the state of Camshaft's run. Its `output` is that of the process function; its
        `metrics` are those of `engine.state.metrics` as they are when an epoch is completed.
        """
        self.native.add(*handlers)
        return self

    def describe(self, *, all: bool = False) -> Description:
        """When the handlers of ignite and of Camshaft are called in a run, and in which order.

        Args:
            all: True to show also the calls by which Camshaft's handlers begin, check and end.
        """
        return describe(self, all)

    def _repr_svg_(self) -> str:
        """What notebooks show: the picture of `describe`."""
        return self.describe().svg()

    def set_data(self, data: Iterable[Any]) -> None:
        """Read other data from the next batch on, as by ignite; the epoch's length stays."""
        self.state.dataloader = data
        if self._run is None:
            self._dataloader_iter = iter(())  # so that the next run reads this data
        elif self._run.feed is not None:
            self._run.feed.restart()

    def state_dict(self) -> OrderedDict[str, Any]:
        """What ignite's engine saves; if it is `exact`, also the place in the data."""
        saved = super().state_dict()
        state = self._native_state
        if self.exact and state is not None:
            if self._run is not None and self._run.feed is not None:
                self._run.feed.store()  # which notes the place in the data, and the generators
            saved[PLACE] = {"epoch": state.epoch, "control": state.control.state_dict()}
        return saved

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` gave, in the next run."""
        place = state_dict.get(PLACE) if isinstance(state_dict, Mapping) else None
        super().load_state_dict(state_dict)
        self._native_state = None
        if self.exact and place is not None:
            state = self._native_state = NativeState(
                iteration=self.state.iteration, epoch=place["epoch"]
            )
            state.control.load_state_dict(place["control"])

    @property
    def fires_always(self) -> bool:
        """True if events without handlers go through `_fire_event` too: for a log or a subclass."""
        is_own = type(self)._fire_event is Engine._fire_event
        return not is_own or self.logger.isEnabledFor(logging.DEBUG)

    def _fire_event(self, event_name: Any, *event_args: Any, **event_kwargs: Any) -> None:
        """Call the handlers of an event, also handlers that are added during the call."""
        if self.logger.isEnabledFor(logging.DEBUG):
            self.logger.debug("%d | %d, %s", self.state.epoch, self.state.iteration, event_name)
        self.last_event_name = event_name
        for function, args, kwargs in self._event_handlers[event_name]:
            given = {**kwargs, **event_kwargs} if event_kwargs else kwargs
            if args and isinstance(args[0], weakref.ref):
                engine = args[0]()
                if engine is None:
                    raise RuntimeError("Engine reference not resolved: the engine is gone")
                function(engine, *event_args, *args[1:], **given)
            else:
                function(*event_args, *args, **given)

    def _announce(self, event: Any) -> None:
        """Do what `_fire_event` does, faster: for the events of each iteration."""
        self.last_event_name = event
        own = self._own
        for function, args, kwargs in self._event_handlers[event]:
            if args == own and not kwargs:
                function(self)
            elif args and isinstance(args[0], weakref.ref):
                function(args[0](), *args[1:], **kwargs)
            else:
                function(*args, **kwargs)

    def _handler_wrapper(
        self, handler: Callable[..., Any], event_name: Any, event_filter: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Wrap a handler so that it is called only when the filter allows it."""
        reference = self._own[0]
        attribute = State.event_to_attr.get(event_name, "")  # "" for an event without a counter
        given = numbers(event_filter)
        every = given["every"] if attribute and given.keys() == {"every"} else None

        @functools.wraps(handler)
        def filtered(*args: Any, **kwargs: Any) -> Any:
            engine = reference()
            assert engine is not None
            if every is not None:  # the usual case, without a call of the filter
                count = getattr(engine.state, attribute)
                return None if count % every else handler(*args, **kwargs)
            count = engine.state.get_event_attrib_value(event_name)
            return handler(*args, **kwargs) if event_filter(engine, count) else None

        vars(filtered).update(_parent=weakref.ref(handler), _filter=event_filter)
        return filtered

    def _handle_exception(self, e: BaseException) -> None:
        """Let the handlers of EXCEPTION_RAISED see it; without one, or if `exact`, raise it."""
        if isinstance(e, SystemExit):  # the process is to end, as after a signal
            raise e
        if not self.exact:
            super()._handle_exception(e)
            self._warn_once(
                "swallowed",
                f"an exception was swallowed, since EXCEPTION_RAISED has or had a handler: {e!r}. "
                "ignite goes on with the next epoch, or ends the run as if it were complete",
            )
        elif self._seen != id(e):  # an error inside an epoch comes here twice
            self._seen = id(e)
            if self._event_handlers.get(Events.EXCEPTION_RAISED):
                self._fire_event(Events.EXCEPTION_RAISED, e)
        if self.exact:
            raise e

    def _internal_run(self) -> State:
        try:
            state = cast("State | None", super()._internal_run())
        except BaseException:
            if self.exact:
                self._internal_run_generator = None
            raise
        if state is None:
            self._warn_once(
                "lost",
                "run() did nothing and returned None, since the run before ended by an exception: "
                "so does ignite; the next run() goes on",
            )
        return cast("State", state)

    def _internal_run_as_gen(self) -> Generator[Any, None, State]:
        run = self._begin()
        try:
            while self._go(run):
                yield self.state
        finally:
            run.close()
            self._run = None
        return self.state

    def _internal_run_legacy(self) -> State:
        next(self._internal_run_as_gen(), None)  # an interruption, by Camshaft's API, ends it too
        return self.state

    def _begin(self) -> Run:
        self.should_interrupt = False
        self.should_terminate: bool | str = False
        self.should_terminate_single_epoch: bool | str = False
        self._dataloader_iter = None
        now, before = self.state, self._native_state
        if before is None or not (now.iteration or now.epoch):
            before = None
        state = self._native_state = before or NativeState()
        # The iteration in which ignite's handlers ended the run has not begun in the loop.
        is_place_known = before is not None and now.iteration - state.iteration in (0, 1)
        if self.exact and is_place_known:
            now.iteration, now.epoch, self._init_iter = state.iteration, state.epoch, None
        else:
            if now.iteration:
                self._warn_once(
                    "anew",
                    f"run() goes on after iteration {now.iteration}, and reads its data from the "
                    "beginning: so does ignite",
                )
            _begin_data_at(state, now.iteration, now.epoch)
        self._run = Run(self, state)
        return self._run

    def _go(self, run: Run) -> bool:
        """Run on; True if the run was interrupted."""
        try:
            return run.go()
        except BaseException as error:
            self._dataloader_iter = None
            self.logger.error("Engine run is terminating due to exception: %s", error)
            self._handle_exception(error)
            return False

    def _warn_once(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("%s. Engine(..., exact=True) does not", text)


def _begin_data_at(state: NativeState[Any, Any], iteration: int, epoch: int) -> None:
    """Keep the counters, which are between two epochs, and read the data from the beginning."""
    state.iteration = state.metrics.iteration = iteration
    state.epoch, state.control.epoch_began = epoch, iteration
    state.control.in_epoch = state.control.epoch_stopped = False
    state.control.position = state.control.completed = None

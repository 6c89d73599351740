"""Signals: blinker's, but ordered, strong, and known to the runs that listen."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import blinker
from blinker import ANY

from .events import EventEnum, Stage, Trigger
from .state import Batch, Output, State

Process = Callable[[State[Batch, Output], Batch], Output]
Receiver = Callable[[State[Any, Any]], object]
Watch = Callable[[EventEnum, Receiver, Receiver], Receiver]
"""Makes of an event, a receiver and its function what is called in the function's place."""
Connected = TypeVar("Connected", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class Subscription:
    """One call of `engine.on`: a function, when it is called and in which stage."""

    function: Receiver
    trigger: Trigger
    stage: Stage = Stage.ACT
    name: str = ""
    """Unique in its engine."""
    local: bool = False
    """True if other ranks do not have it, and so cannot agree on anything with it."""
    handler: str = ""
    """The name of the handler whose method the function is."""

    def __call__(self, state: State[Any, Any]) -> object:
        """Call the function, as a plain receiver of a signal."""
        return self.function(state)


class Signal(blinker.Signal):
    """An event of one engine, in blinker's vocabulary; the sender is the state of the run.

    Receivers are held strongly and called by stage, then in the order they were connected. What
    is connected here without `engine.on` acts at each occurrence. Changes made during a run are
    safe and take effect at the next moment.
    """

    def __init__(self, event: EventEnum) -> None:
        super().__init__(f"{event!r} of one engine.")
        self.event = event
        self.listeners: list[Callable[[], None]] = []
        """Called when receivers come or go: the moments of runs under way look again."""

    def connect(self, receiver: Connected, sender: Any = ANY, weak: bool = False) -> Connected:
        """Call `receiver` with the state at each occurrence; with `sender`, in that run only.

        Raises:
            ValueError: A weak reference is asked for: a handler that vanishes is a bug.
        """
        if weak:
            raise ValueError(
                "Camshaft's signals hold their receivers strongly; leave weak out, and disconnect "
                "when done: `with signal.connected_to(receiver): ...`"
            )
        check_arity(receiver, 1, f"{self.event!r}", "the state")
        super().connect(receiver, sender, weak=False)
        self.changed()
        return receiver

    def disconnect(self, receiver: Callable[..., Any], sender: Any = ANY) -> None:
        """Call `receiver` no longer, whether it was connected here or by `engine.on`."""
        for each in list(self.receivers.values()):
            if isinstance(each, Subscription) and each.function == receiver:
                super().disconnect(each, sender)
        super().disconnect(receiver, sender)
        self.changed()

    def receivers_for(self, sender: Any) -> Generator[Callable[..., Any], None, None]:
        """The receivers for one run, by stage and then in the order they were connected."""
        chosen = {id(receiver) for receiver in super().receivers_for(sender)}
        ordered = [each for each in self.receivers.values() if id(each) in chosen]
        yield from sorted(ordered, key=lambda each: getattr(each, "stage", Stage.ACT))

    @property
    def is_muted(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True within `with signal.muted():`."""
        return self._muted

    @is_muted.setter
    def is_muted(self, muted: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._muted = muted
        self.changed()

    def changed(self) -> None:
        """Let the runs under way look again at who is to be called."""
        for outdate in getattr(self, "listeners", ()):
            outdate()


class Signals(dict[EventEnum, Signal]):
    """The signals of one engine, each made when its event is first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.watches: list[Watch] = []

    def __missing__(self, event: EventEnum) -> Signal:
        signal = self[event] = Signal(event)
        return signal

    def changed(self) -> None:
        """Let the runs under way look again at all events."""
        for signal in self.values():
            signal.changed()


def label(function: Callable[..., Any]) -> str:
    """The name of a receiver: its name in the engine, or its qualified name in the source."""
    inner = getattr(function, "func", function)  # functools.partial has no name of its own
    own = getattr(inner, "name", "") if isinstance(inner, Subscription) else ""
    name = own or getattr(inner, "__qualname__", type(inner).__qualname__)
    return str(name).rpartition("<locals>.")[2]


def identity(function: Any) -> Hashable:
    """What a function, its `functools.partial` and its decorated form share; so do equal methods.

    >>> def step(state, batch, model):
    ...     pass
    >>> identity(partial(step, model=None)) == identity(step)
    True
    """
    while (owner := getattr(function, "__self__", None)) is None:
        if isinstance(function, partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return id(function)
    return id(owner), getattr(function, "__name__", "")


def source(function: Callable[..., Any]) -> str:
    """Where a function, or the class of a callable object, is written: file and line."""
    inner = function.function if isinstance(function, Subscription) else function
    inner = inspect.unwrap(getattr(inner, "func", inner))
    for candidate in (inner, vars(type(inner)).get("__call__")):
        if code := getattr(candidate, "__code__", None):
            return f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    return "built in"


def check_arity(function: object, arguments: int, where: str, needs: str) -> None:
    """Refuse what cannot be called with this many positional arguments."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    if not callable(function):
        raise TypeError(f"{function!r} for {where} cannot be called; it needs to be a function")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{name} for {where} is a coroutine function; write it with plain def")
    if inspect.isgeneratorfunction(function):
        raise TypeError(f"{name} for {where} has a yield in it, so a call would not run it")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-ins do not tell
        return
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        raise TypeError(
            f"{name}{signature} for {where} cannot be called with {needs}; write it to take "
            f"{arguments} positional argument{'s' * (arguments > 1)}"
        ) from None

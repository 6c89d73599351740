"""Signals: blinker's, but ordered, strong, and known to the runs that listen."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import blinker
from blinker import ANY

from ..events import EventEnum, Stage
from .functions import Subscription, Watch, check_arity, is_same

Connected = TypeVar("Connected", bound=Callable[..., Any])


class Signal(blinker.Signal):
    """An event of one engine, in blinker's vocabulary; the sender is the state of the run.

    Receivers are held strongly and called by stage, then in the order they were connected. What
    is connected here without `engine.on` acts at each occurrence. Changes made during a run are
    safe and take effect at the next moment.
    """

    _muted: bool = False

    def __init__(self, event: EventEnum) -> None:
        super().__init__()
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

    @property
    def subscriptions(self) -> list[Subscription]:
        """What `engine.on` has attached, in the order of attachment."""
        return [each for each in self.receivers.values() if isinstance(each, Subscription)]

    def disconnect(self, receiver: Callable[..., Any], sender: Any = ANY) -> None:
        """Stop calling `receiver`, whether it was connected here or by `engine.on`."""
        for each in self.subscriptions:
            if is_same(each.function, receiver):
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
        if muted != self._muted:
            self.changed()
        self._muted = muted

    def changed(self) -> None:
        """Let running runs look up their receivers again."""
        for outdate in self.listeners:
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
        """Let running runs look up the receivers of all events again."""
        for signal in self.values():
            signal.changed()

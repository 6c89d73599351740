"""A run that is checked: the facts that checks share, and how a check waits for its moments."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cached_property, partial
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from ..changes import is_kind_of_update
from ..events import EventEnum, Events
from ..modules import modules_of, parameters_of
from ..signals import PACKAGE, Process, Receiver
from ..state import State

if TYPE_CHECKING:
    from ..moments import Moments
    from ..update import Update


class After(NamedTuple):
    """A moment after all handlers of an event; the event itself is before them."""

    event: EventEnum


Moment = EventEnum | After
Check = Generator[tuple[Moment, ...], Moment, None]
"""A check reads from top to bottom: what is before the first `yield` is looked at as the run
starts, each `yield` waits for one of some moments, and the check is over when it returns."""

ENDS = (Events.EPOCH_COMPLETED, Events.COMPLETED)


class Checked:
    """A run, the facts about it that several checks share, and the checks that go on with it."""

    def __init__(
        self, state: State[Any, Any], moments: Moments, process: Process[Any, Any]
    ) -> None:
        self.state: State[Any, Any] = state
        self.moments: Moments = moments
        self.process: Process[Any, Any] = process
        self.objects: Mapping[str, Any] = state.engine.objects
        self.handlers: Mapping[str, Any] = state.engine.handlers
        self._began = state.epoch
        self._checks: dict[Check, tuple[Any, ...]] = {}
        """The moments that each check waits for now; None for its beginning."""
        self._calls: dict[Moment, tuple[EventEnum, Receiver]] = {}

    @cached_property
    def is_bridge(self) -> bool:
        """True if the process function is a handler's, which does all as its library does."""
        return str(getattr(self.process, "__module__", "")).startswith(f"{PACKAGE}.handlers")

    @cached_property
    def updates(self) -> dict[str, Update]:
        """The updates among the handlers, by name."""
        return {name: each for name, each in self.handlers.items() if is_kind_of_update(type(each))}

    @cached_property
    def optimizers(self) -> dict[str, Any]:
        """The optimizers that the engine knows, by a name for messages."""
        return optimizers_of(objects_by_place(self.objects), self.handlers)

    @cached_property
    def weights(self) -> set[int]:
        """The identities of the parameters of all modules that are, or are in, its objects."""
        found = [each for thing in self.objects.values() for each in modules_of(thing)]
        return {id(each) for module in found for each in module.parameters()}

    @cached_property
    def trained(self) -> set[int]:
        """The identities of the parameters that these optimizers update."""
        return {id(each) for one in self.optimizers.values() for each in parameters_of(one)}

    def follow(self, *checks: Check) -> None:
        """Begin these checks, and let each go on at the moments that it waits for."""
        self._checks |= dict.fromkeys(checks, (None,))
        with _lock:
            _running.append(get_ident())
        self.moments.add_check(Events.CLOSED, self._close, last=True)
        self._go_on(None, self.state)

    def ended(self, moment: Moment | None) -> bool:
        """True if this moment is the end of this run's first new epoch, or of the run after it."""
        return moment in ENDS and self.state.epoch > self._began

    def first_epoch(self) -> Check:
        """Wait for the end of the first new epoch."""
        while not self.ended((yield ENDS)):
            pass

    def _go_on(self, moment: Moment | None, state: State[Any, Any]) -> None:
        for check, waits in [*self._checks.items()]:
            if moment in waits:
                try:
                    self._checks[check] = check.send(moment)  # type: ignore[arg-type]
                except StopIteration:
                    del self._checks[check]
        wanted = set[Moment]().union(*self._checks.values())
        for gone in self._calls.keys() - wanted:
            self.moments.drop_check(*self._calls.pop(gone))
        for new in wanted - self._calls.keys():
            event: EventEnum = new.event if isinstance(new, After) else new
            self._calls[new] = event, (call := partial(self._go_on, new))
            self.moments.add_check(event, call, last=isinstance(new, After))

    def _close(self, state: State[Any, Any]) -> None:
        for check in self._checks:
            check.close()  # leaves its `with` blocks
        self._checks.clear()
        self._calls.clear()
        with _lock:
            _running.remove(get_ident())
            _tidy()


def objects_by_place(objects: Mapping[str, Any]) -> dict[str, Any]:
    """The objects of an engine, by the expressions that name them."""
    return {f"objects[{name!r}]": each for name, each in objects.items()}


def optimizers_of(things: Mapping[str, Any], handlers: Mapping[str, Any]) -> dict[str, Any]:
    """The optimizers among these things, and optimizers of schedules, updates and handlers."""
    owned = {
        f"the optimizer of {name}": getattr(each, "optimizer", None)
        for name, each in (*things.items(), *handlers.items())
    }
    found = {id(each): (name, each) for name, each in (*owned.items(), *things.items())}
    # A proxy, which has an attribute of any name, is none.
    return {
        name: each
        for name, each in found.values()
        if isinstance(getattr(each, "param_groups", None), Sequence)
    }


_lock = Lock()
_running: list[int] = []
"""The threads of the training runs, one entry for each run."""
_looks: list[Callable[[Any], None]] = []
_hooks: list[Any] = []
"""Torch's handle of the hook, while it is there."""


def watch_steps(look: Callable[[Any], None]) -> None:
    """Call `look` with any optimizer of the process after each of its steps, in its thread."""
    optimizers: Any = sys.modules.get("torch.optim.optimizer")
    if optimizers is None:  # nothing steps where torch is absent
        return
    with _lock:
        _looks.append(look)
        if not _hooks:
            _hooks.append(optimizers.register_optimizer_step_post_hook(_stepped))


def unwatch_steps(look: Callable[[Any], None]) -> None:
    """Stop calling `look`; do not call this while an optimizer of this thread steps."""
    with _lock:
        if look in _looks:
            _looks.remove(look)
        _tidy()


def _tidy() -> None:
    """Remove an idle hook, unless another thread trains, which may be iterating over the hooks."""
    if _hooks and not _looks and {*_running} <= {get_ident()}:
        _hooks.pop().remove()


def _stepped(optimizer: Any, *_: object) -> None:
    for look in _looks.copy():
        look(optimizer)

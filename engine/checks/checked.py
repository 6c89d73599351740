"""A run that is checked: the facts that checks share, and the moments of the checks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

from ..events import EventEnum, Events
from ..signals import Process, Receiver
from ..state import State
from .reached import is_update, words_in

if TYPE_CHECKING:
    from ..moments import Moments
    from ..update import Update


class Checked:
    """A run, the facts about it that several checks share, and the moments of the checks.

    Each check gets this object as the run begins: it looks at once, or asks for later calls.
    """

    def __init__(
        self, state: State[Any, Any], moments: Moments, process: Process[Any, Any]
    ) -> None:
        self.state: State[Any, Any] = state
        self.moments: Moments = moments
        self.process: Process[Any, Any] = process
        self.objects: Mapping[str, Any] = state.engine.objects
        self.handlers: Mapping[str, Any] = state.engine.handlers
        if state.training:
            _begin()
            self.at(Events.CLOSED, _end)

    @cached_property
    def updates(self) -> dict[str, Update]:
        """The updates among the handlers, by name."""
        return {name: each for name, each in self.handlers.items() if is_update(each)}

    @cached_property
    def optimizers(self) -> dict[str, Any]:
        """The optimizers that the engine knows, by a name for messages."""
        return optimizers_of(objects_by_place(self.objects), self.handlers)

    @cached_property
    def trained(self) -> set[int]:
        """The identities of the parameters that these optimizers update."""
        return {id(each) for one in self.optimizers.values() for each in updated(one)}

    @cached_property
    def words(self) -> set[str]:
        """The names and texts in the code of the process function."""
        return words_in([self.process])

    def at(self, event: EventEnum, check: Receiver, *, last: bool = False) -> None:
        """Call a check at each occurrence of an event: before all handlers, or after all."""
        self.moments.add_check(event, check, last=last)

    def no_more(self, event: EventEnum, check: Receiver) -> None:
        """Stop calling a check, from the next occurrence on."""
        self.moments.drop_check(event, check)

    def after_first_epoch(self, check: Receiver) -> None:
        """Call a check once, at the end of this run's first new epoch, or of the run."""
        began, is_pending = self.state.epoch, True

        def call(state: State[Any, Any]) -> None:
            nonlocal is_pending
            if is_pending and state.epoch > began:
                is_pending = False
                check(state)

        for event in (Events.EPOCH_COMPLETED, Events.COMPLETED):
            self.at(event, call)


def is_optimizer(thing: object) -> bool:
    """True for an object with parameter groups, such as torch's optimizers."""
    return hasattr(type(thing), "add_param_group")


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
    return {name: each for name, each in found.values() if _has_groups(each)}


def _has_groups(thing: object) -> bool:
    """True for an optimizer; a proxy, which has an attribute of any name, is none."""
    return isinstance(getattr(thing, "param_groups", None), Sequence)


def updated(optimizer: Any) -> Iterable[Any]:
    """The parameters that an optimizer updates."""
    return (each for group in optimizer.param_groups for each in group["params"])


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


def _begin() -> None:
    with _lock:
        _running.append(get_ident())


def _end(state: State[Any, Any]) -> None:
    with _lock:
        _running.remove(get_ident())
        _tidy()


def _tidy() -> None:
    """Remove an idle hook, unless another thread trains, which may be iterating over the hooks."""
    if _hooks and not _looks and {*_running} <= {get_ident()}:
        _hooks.pop().remove()


def _stepped(optimizer: Any, *_: object) -> None:
    for look in _looks.copy():
        look(optimizer)

"""Objects that a run changes and no checkpoint holds, found by a few numbers of each tensor."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from .. import modules
from ..explain import warn
from ..signals import Subscription
from ..state import State
from .reached import PLAIN, reached

SAMPLES = 8
"""How many numbers of each tensor are compared; a write by `.data` does not raise the version."""


class Unsaved:
    """Warns of modules, optimizers, schedules and similar that a run changes and does not save.

    It looks at objects that the process function and the script's handlers reach, and that are
    neither among the engine's objects nor a part of one. Unchanged objects, such as a teacher or a
    loss, are left out. A few numbers of each tensor are compared, at the first save, the second,
    the fourth and so on. It is made before the first batch.
    """

    def __init__(self, state: State[Any, Any]) -> None:
        self._state = state
        self._saves = 0
        known = _known(state)
        moments = state.control.moments
        functions = script_functions(state.engine.process, moments.signals if moments else {})
        found = reached(functions, partial(_is_whole, known))
        prints = {name: _fingerprint(each, known) for name, each in found.items()}
        self._found = {name: (each, prints[name]) for name, each in found.items() if prints[name]}

    def tell(self) -> None:
        """Warn, once for each object, of changed objects."""
        self._saves += 1
        if not self._found or self._saves & (self._saves - 1):
            return
        known = _known(self._state)
        changed = {
            name: each
            for name, (each, before) in self._found.items()
            if id(each) not in known and not are_equal(_fingerprint(each, known), before)
        }
        if changed:
            for name in changed:
                del self._found[name]
            warn(_message(changed, self._state.engine.objects))


def is_stateful(thing: object) -> bool:
    """True if a checkpoint can hold an object, by its class; false for data that gives batches."""
    kind = type(thing)
    if not (hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict")):
        return False
    if kind.__module__.partition(".")[0] == "camshaft":  # such as a state
        return False
    return modules.is_module(thing) or not hasattr(kind, "__iter__")


def _is_whole(known: set[int], thing: Any) -> bool:
    """True for an object with a state, unless one of its attributes is saved already."""
    return is_stateful(thing) and not any(id(each) in known for each in _attributes(thing))


def script_functions(
    process: Callable[..., Any], signals: Mapping[Any, Any]
) -> Iterator[Callable[..., Any]]:
    """The process function, and functions that a script attached, without Camshaft's handlers."""
    yield process
    for signal in signals.values():
        for each in signal.receivers.values():
            function = each.function if isinstance(each, Subscription) else each
            owner = type(getattr(function, "__self__", None)).__module__
            if owner.partition(".")[0] != "camshaft":
                yield function
            if isinstance(each, Subscription):
                yield from (e.where for e in each.trigger.clauses if e.where is not None)


def _known(state: State[Any, Any]) -> set[int]:
    """The ids of saved things: objects and their parts, handlers, and objects in their memories."""
    objects, handlers = state.engine.objects, state.engine.handlers
    memories = [
        each for each in state.memory.saved.values() if hasattr(type(each), "saved_objects")
    ]
    kept = [each for memory in memories for each in memory.saved_objects()]
    inside = [each for outer in (*objects.values(), *kept) for each in _attributes(outer)]
    found = [*objects.values(), *handlers.values(), *kept, *inside]
    for module in modules.all_modules(objects.values()):
        found += [module, *module.parameters(recurse=False), *module.buffers(recurse=False)]
    return set(map(id, found))


def _attributes(thing: Any) -> list[Any]:
    """The attributes of a script's own object; for an object of torch, its inner schedulers."""
    if modules.is_module(thing) or type(thing).__module__.partition(".")[0] == "torch":
        return list(vars(thing).get("_schedulers", ()))
    return list(getattr(thing, "__dict__", {}).values())


def _fingerprint(thing: Any, known: set[int]) -> list[Any]:
    """A few numbers of each tensor that is not saved, and the plain values of a `state_dict`."""
    if id(thing) in known or id(modules.plain_optimizer(thing)) in known:
        return []
    if modules.is_module(thing):
        own = [*thing.parameters(), *thing.buffers()]
        return [sample(each) for each in own if id(each) not in known]
    with suppress(Exception):  # a method of the script's own
        return list(_values(thing.state_dict()))
    return []


def _values(tree: Any, depth: int = 6) -> Iterator[Any]:
    if isinstance(tree, PLAIN):
        yield tree
    elif hasattr(tree, "untyped_storage"):
        yield sample(tree)
    elif depth and isinstance(tree, Mapping | list | tuple):
        items: Iterable[Any] = tree.values() if isinstance(tree, Mapping) else tree
        yield len(tree)
        for each in items:
            yield from _values(each, depth - 1)


def _message(changed: Mapping[str, Any], objects: Mapping[str, Any]) -> str:
    kinds = " and ".join(f"{name} ({type(each).__name__})" for name, each in changed.items())
    lines, taken = "", {*objects}
    for name in changed:
        names = re.findall(r"\w+", name)
        word = names[-1] if names[-1] not in taken else "_".join(names)
        lines += f'{"; " * bool(lines)}engine.objects["{word}"] = {name}'
        taken.add(word)
    for name, each in changed.items():
        if hasattr(each, "last_epoch"):
            lines += f"; or engine.add(LRSchedule({name})) in place of {name}.step()"
    which = "it" if len(changed) == 1 else "them"
    return (
        f"the run changes {kinds}, and no checkpoint holds {which}, so that a resumed run "
        "is another run. Name what a run changes, before it starts: " + lines
    )


def sample(tensor: Any) -> Any:
    """The bytes of a few numbers of a tensor, on its device; None if it has no numbers yet."""
    with suppress(Exception):  # such as a parameter without a shape, or on the device "meta"
        own = modules.local(tensor).detach().reshape(-1)
        some = own[:: max(1, own.numel() // SAMPLES)]
        return some.clone().view(sys.modules["torch"].uint8)
    return None


def are_equal(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """True if these samples of tensors and plain values are the same, in order."""
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(_is_equal(*each) for each in pairs)


def _is_equal(one: Any, other: Any) -> bool:
    if hasattr(one, "untyped_storage") and hasattr(other, "untyped_storage"):
        return one.device == other.device and bool(sys.modules["torch"].equal(one, other))
    return type(one) is type(other) and (one == other or one != one)  # NaN equals NaN

"""Objects and iterators that a run changes, and no checkpoint holds: a warning each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from types import GeneratorType
from typing import Any

from .. import modules
from ..explain import warn
from ..names import few
from ..state import State, once_a_type, walk
from .held import insides_of, is_stateful, state_of, things_in
from .reached import PLAIN


class Unsaved:
    """The objects with a state that a script uses, and the iterators from which it draws."""

    def __init__(self, state: State[Any, Any]) -> None:
        self._state, self._saves = state, 0
        self.held: set[int] = things_in(state)
        """The ids of what a checkpoint holds."""
        self.noted: dict[str, tuple[Any, Any]] = {}
        """By expression: objects with a state that no checkpoint holds, and its fingerprint."""
        self.iterators: dict[str, bool] = {}
        """By name: places of iterators, and whether there is one as the run begins."""

    def __contains__(self, thing: Any) -> bool:
        """True for an object with a state that is not saved, nor is anything that it holds."""
        if not is_stateful(type(thing)) or id(thing) in self.held:
            return False
        if modules.is_module(thing):
            return any(id(each) not in self.held for each in thing.parameters())
        return not any(id(each) in self.held for each in insides_of(thing))

    def note(self, name: str, thing: Any) -> None:
        """Note the state of an object, as the run begins."""
        self.noted[name] = thing, _fingerprint(thing, self.held)

    def tell(self, now: Mapping[str, Any]) -> None:
        """Warn, at a save, of what has changed; `now` has what is in the places of iterators."""
        self._tell_of_iterators(now)
        self._saves += 1
        # At the first save, the second, the fourth and so on.
        if self.noted and not self._saves & (self._saves - 1):
            self._tell_of_objects()

    def _tell_of_iterators(self, now: Mapping[str, Any]) -> None:
        """Warn, once for each, of iterators of the script's own from which its functions draw."""
        drawn = {n: v for n, v in now.items() if _is_under_way(v, is_noted=self.iterators[n])}
        for name in drawn:
            del self.iterators[name]
        if said := ", ".join(f"{name} ({type(each).__name__})" for name, each in drawn.items()):
            warn(
                f"the run draws from {said}, and no checkpoint holds how far that has come: it "
                "begins anew after a resume, so that a resumed run is another run. Let the data of "
                "the run give these items, too: docs/guides/data.md#several-loaders; or let an "
                "object with state_dict() and load_state_dict() draw them, in engine.objects"
            )

    def _tell_of_objects(self) -> None:
        """Warn, once for each object, of changed objects with a state that are not saved."""
        held, changed = things_in(self._state), dict[str, Any]()
        for name, (each, before) in [*self.noted.items()]:
            if id(each) not in held and _fingerprint(each, held) != before:
                changed[name], _ = self.noted.pop(name)
        if changed:
            warn(_message(changed, self._state.engine.objects))


@once_a_type
def is_kind_of_iterator(kind: type) -> bool:
    """True for iterators of Python, also generators, and of torch's loaders; not for files."""
    is_pythons = kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")
    return is_pythons or hasattr(kind, "_next_data")


def _is_under_way(value: Any, *, is_noted: bool) -> bool:
    """True for an iterator that has begun and not ended; where nothing tells, if it is noted."""
    if isinstance(value, GeneratorType):
        return value.gi_suspended
    if (given := getattr(value, "_num_yielded", None)) is None:
        return is_noted and is_kind_of_iterator(type(value))
    with suppress(TypeError):  # of a stream
        return bool(0 < given < len(value))
    return bool(given)


def _fingerprint(thing: Any, held: set[int]) -> Any:
    """A few numbers of each tensor that is not saved, and the plain values of a `state_dict`."""
    if id(thing) in held or id(modules.plain_optimizer(thing)) in held:
        return []
    if modules.is_module(thing):
        values = [e for e in (*thing.parameters(), *thing.buffers()) if id(e) not in held]
    else:
        values = [each for _, each in walk(state_of(thing), plain=True, depth=6)]
    tensors = [modules.sample(each) for each in values if hasattr(each, "untyped_storage")]
    return [each if isinstance(each, PLAIN) else type(each) for each in values], tensors


def _message(changed: Mapping[str, Any], objects: Mapping[str, Any]) -> str:
    kinds = few((f"{name} ({type(each).__name__})" for name, each in changed.items()), most=10)
    lines, taken = list[str](), {*objects}
    for name in changed:
        names = re.findall(r"\w+", name)
        word = names[-1] if names[-1] not in taken else "_".join(names)
        lines.append(f'engine.objects["{word}"] = {name}')
        taken.add(word)
    schedules = (name for name, each in changed.items() if hasattr(each, "last_epoch"))
    lines += (f"or engine.add(LRSchedule({n})) in place of {n}.step()" for n in schedules)
    which = "it" if len(changed) == 1 else "them"
    return (
        f"the run changes {kinds}, and no checkpoint holds {which}, so that a resumed run "
        "is another run. Name what a run changes, before it starts: " + "; ".join(lines[:10])
    )

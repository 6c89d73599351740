"""What functions of a script can reach, and what of it a run changes and no checkpoint holds."""

from __future__ import annotations

import dis
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from .. import modules
from ..explain import ROOMS, warn
from ..signals import Subscription
from ..state import State
from .parameters import is_update
from .unchanged import are_equal, sample

DEEPEST = 6
"""Steps from a function to what it reaches, such as `self.agent.nets["target"]`."""
WIDEST = 64
"""Elements of a container that are looked at: what holds more is data."""
MOST = 5_000
"""Things that are looked at in all."""
FOREIGN = {*sys.stdlib_module_names, "builtins", "torch", "numpy", "camshaft"} - {"__main__"}
"""Packages into whose objects and functions nobody looks."""
LIBRARIES = (*ROOMS, str(Path(dis.__file__).parent), "<frozen")
"""Where the files of functions begin into which nobody looks."""
PLAIN = (str, int, float, bool, type(None))


class Unsaved:
    """Warns of modules, optimizers, schedules and the like that a run changes and does not save.

    They are those that the process function and the script's handlers reach, and that are neither
    among the engine's objects nor a part of one. What nobody changes is left out: a teacher, a
    loss. A few numbers of each tensor are compared, at the first save, the second, the fourth and
    so on.

    Args:
        state: A run, before its first batch.
    """

    def __init__(self, state: State[Any, Any]) -> None:
        self._state = state
        self._saves = 0
        known = _known(state)
        found = reached(_functions(state), partial(_is_whole, known))
        prints = {name: _fingerprint(each, known) for name, each in found.items()}
        self._found = {name: (each, prints[name]) for name, each in found.items() if prints[name]}

    def tell(self) -> None:
        """Warn, once, of what has changed."""
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
    """True for what a checkpoint can hold, by its class; what gives batches has a place instead."""
    kind = type(thing)
    if not (hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict")):
        return False
    if kind.__module__.partition(".")[0] == "camshaft":  # such as a state
        return False
    return modules.is_module(thing) or not hasattr(kind, "__iter__")


def _is_whole(known: set[int], thing: Any) -> bool:
    """True for what is saved or not as a whole; an agent whose networks are named is no such."""
    return is_stateful(thing) and not any(id(each) in known for each in _parts(thing))


def _functions(state: State[Any, Any]) -> Iterator[Callable[..., Any]]:
    """The process function, and the functions that a script attached; handlers have a memory."""
    yield state.engine.process
    moments = state.control.moments
    for signal in () if moments is None else moments.signals.values():
        for each in signal.receivers.values():
            function = each.function if isinstance(each, Subscription) else each
            owner = type(getattr(function, "__self__", None)).__module__
            if owner.partition(".")[0] != "camshaft":
                yield function


def _known(state: State[Any, Any]) -> set[int]:
    """The identities of what is saved: objects, what they consist of, handlers, their memories."""
    objects, handlers = state.engine.objects, state.engine.handlers
    memories = [
        each for each in state.memory.saved.values() if hasattr(type(each), "saved_objects")
    ]
    kept = [part for each in memories for part in each.saved_objects()]
    inside = [part for each in (*objects.values(), *kept) for part in _parts(each)]
    found = [*objects.values(), *handlers.values(), *kept, *inside]
    for module in modules.all_modules(objects.values()):
        found += [module, *module.parameters(recurse=False), *module.buffers(recurse=False)]
    return set(map(id, found))


def _parts(thing: Any) -> list[Any]:
    """The attributes of an object of the script's own, and the schedulers of one of torch's."""
    if modules.is_module(thing) or type(thing).__module__.partition(".")[0] == "torch":
        return list(vars(thing).get("_schedulers", ()))
    return list(getattr(thing, "__dict__", {}).values())


def _fingerprint(thing: Any, known: set[int]) -> list[Any]:
    """A few numbers of each tensor that is not known, and the plain values of a `state_dict`."""
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
        parts: Iterable[Any] = tree.values() if isinstance(tree, Mapping) else tree
        yield len(tree)
        for each in parts:
            yield from _values(each, depth - 1)


def _message(changed: Mapping[str, Any], objects: Mapping[str, Any]) -> str:
    kinds = " and ".join(f"{name} ({type(each).__name__})" for name, each in changed.items())
    lines, taken = "", {*objects}
    for name in changed:
        parts = re.findall(r"\w+", name)
        word = parts[-1] if parts[-1] not in taken else "_".join(parts)
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


def reached(functions: Iterable[object], wanted: Callable[[Any], bool]) -> dict[str, Any]:
    """The things that are wanted among those that functions of a script can reach, by expression.

    That is what their code names, their helpers in the script included. Nobody looks into a thing
    that is wanted, into the objects of other libraries, or into large containers.

    >>> from torch import nn
    >>> target = nn.Linear(2, 1)
    >>> def step(state, batch, nets={"target": target}):
    ...     return nets["target"](batch)
    >>> reached([step], lambda thing: isinstance(thing, nn.Module))
    {"nets['target']": Linear(in_features=2, out_features=1, bias=True)}
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()
    left = deque((each, "self" if _is_of_the_script(each) else "", 0) for each in functions)
    roots = [getattr(each, "__self__", None) for each in functions]
    while left and len(seen) < MOST:
        thing, name, depth = left.popleft()
        if id(thing) in seen or isinstance(thing, type | ModuleType | str | int | float | None):
            continue
        seen.add(id(thing))
        if name and wanted(thing):
            found.setdefault(name, thing)
        elif depth < DEEPEST:
            is_root = any(thing is each for each in roots)
            left += ((*each, depth + 1) for each in _inside(thing, name, is_root))
    return found


def words_in(functions: Iterable[object]) -> set[str]:
    """The names and texts in the code of functions, and of the script's functions that they call.

    >>> def sums(loss):
    ...     return loss.sum()
    >>> def step(state, batch):
    ...     return sums(batch)
    >>> "sum" in words_in([step])
    True
    """
    words: set[str] = set()
    seen: set[FunctionType] = set()
    left = [each for each in map(_called, functions) if each and not _is_of_a_library(each[0])]
    while left:
        function, owner = left.pop()
        if function in seen:
            continue
        seen.add(function)
        codes = [*_codes(function.__code__)]
        texts = [each for code in codes for each in code.co_consts if isinstance(each, str)]
        named = {*texts, *chain.from_iterable(code.co_names for code in codes)}
        words |= named
        things = [owner, *(each for each, _ in _named_by(function))]
        for each in filter(_is_of_the_script, [*things]):
            things += [vars(each).get(name) for name in named]
        methods = [
            MethodType(method, each)
            for each in filter(_is_of_the_script, things)
            for name in named
            if isinstance(method := getattr(type(each), name, None), FunctionType)
        ]
        helpers = [each for each in things if isinstance(each, FunctionType | MethodType | partial)]
        called = filter(None, map(_called, [*helpers, *methods]))
        left += [each for each in called if not _is_foreign(each[0])]
    return words


def _called(thing: Any) -> tuple[FunctionType, Any] | None:
    """The function that a call of a thing runs, and the object whose method it is."""
    while isinstance(thing, partial):
        thing = thing.func
    owner, function = getattr(thing, "__self__", None), getattr(thing, "__func__", thing)
    if not isinstance(function, FunctionType):
        owner, function = thing, type(thing).__call__ if callable(thing) else None
    return (function, owner) if isinstance(function, FunctionType) else None


def _is_of_a_library(function: FunctionType) -> bool:
    return _is_foreign(function) and function.__module__.partition(".")[0] in FOREIGN


def _inside(thing: Any, name: str, is_root: bool) -> Iterator[tuple[Any, str]]:
    """What a thing holds, and by which expression the script would name it."""
    if isinstance(thing, FunctionType):
        yield from _named_by(thing) if not _is_foreign(thing) else ()
    elif isinstance(thing, MethodType):
        yield thing.__self__, name.rpartition(".")[0] or "self"
        yield thing.__func__, name
    elif isinstance(thing, partial):
        inner = getattr(thing.func, "__code__", None)
        names = inner.co_varnames if inner else ()
        for number, each in enumerate(thing.args):
            yield each, names[number] if number < len(names) else f"args[{number}]"
        yield from ((each, key) for key, each in thing.keywords.items())
        yield thing.func, name
    elif isinstance(thing, Mapping) and len(thing) <= WIDEST:
        yield from ((each, f"{name}[{key!r}]") for key, each in thing.items())
    elif isinstance(thing, list | tuple | set | deque) and len(thing) <= WIDEST:
        yield from ((each, f"{name}[{number}]") for number, each in enumerate(thing))
    elif is_root or _is_of_the_script(thing):
        yield from ((each, f"{name}.{key}") for key, each in islice(vars(thing).items(), WIDEST))
        for kind in type(thing).__mro__:  # a method may call any other one
            yield from ((each, name) for each in vars(kind).values())


def _named_by(function: FunctionType) -> Iterator[tuple[Any, str]]:
    """Cells, globals and defaults of a function, and the function that a decorator wrapped."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield cell.cell_contents, name
        except ValueError:  # a cell that is still empty
            continue
    codes = chain.from_iterable(map(dis.get_instructions, _codes(function.__code__)))
    names = dict.fromkeys(each.argval for each in codes if each.opname == "LOAD_GLOBAL")
    for name in names:
        if name in function.__globals__:
            yield function.__globals__[name], name
    defaults = function.__defaults__ or ()
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(defaults, arguments[len(arguments) - len(defaults) :], strict=True)
    yield from ((each, name) for name, each in (function.__kwdefaults__ or {}).items())


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions and comprehensions inside."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _is_foreign(function: FunctionType) -> bool:
    file = function.__code__.co_filename
    return "site-packages" in file or file.startswith(LIBRARIES)


def _is_of_the_script(thing: Any) -> bool:
    """True for an object whose attributes are a script's own; an `Update` is looked into, too."""
    kind = type(thing)
    if not hasattr(thing, "__dict__") or isinstance(thing, FunctionType):
        return False
    home = kind.__module__.partition(".")[0]
    return is_update(thing) or kind is SimpleNamespace or home not in FOREIGN

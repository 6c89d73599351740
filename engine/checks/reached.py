"""The objects that functions of a script can reach, and the names in their code."""

from __future__ import annotations

import dis
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from .. import modules
from ..explain import ROOMS
from ..state import generators_of, global_generators, is_generator

DEEPEST = 12
"""The most steps from a function to an object, such as `self.agent.nets["target"]`."""
WIDEST = 64
"""The most elements of a container that is searched: a larger container is data."""
MOST = 5_000
"""The most objects that are searched in all."""
FOREIGN = {*sys.stdlib_module_names, "builtins", "torch", "numpy", "camshaft"} - {"__main__"}
"""Packages whose objects and functions are not searched."""
LIBRARIES = (*ROOMS, str(Path(dis.__file__).parent), "<frozen")
"""Beginnings of file paths whose functions are not searched."""
PLAIN = (str, int, float, bool, type(None))
UPDATES = f"{__name__.partition('.engine.')[0]}.engine.update"


def reached(functions: Iterable[object], wanted: Callable[[Any], bool]) -> dict[str, Any]:
    """By expression: the wanted objects that functions of a script can reach.

    The search follows the names in their code and in the script's helpers. It does not go into a
    wanted object, the objects of other libraries, or large containers.

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


def generators_of_run(
    objects: Mapping[str, Any], functions: Iterable[Callable[..., Any]], data: object = None
) -> dict[str, Any]:
    """By name: the random generators that objects and their modules hold, and functions reach.

    The functions that read `data` are among these. Left out are the generators of Python, NumPy
    and torch themselves, and those that `data` holds.

    >>> import random
    >>> noise = random.Random(1)
    >>> def step(state, batch):
    ...     return noise.random()
    >>> list(generators_of_run({"agent": SimpleNamespace(explore=random.Random(2))}, [step]))
    ['agent.explore', 'noise']
    """
    found = modules.generators_in(objects)
    seen = set(map(id, (*found.values(), *global_generators(), *generators_of(data))))
    called = (*functions, *modules.hooks_of(objects), *_reading(data))
    for function in called:  # each by itself: two may use the same name
        for name, each in reached([function], is_generator).items():
            if id(each) not in seen:
                seen.add(id(each))
                found[name if name not in found else f"{name} {len(found)}"] = each
    return found


def doubts_of_workers(data: Any) -> list[str]:
    """A sentence if workers copy generators, at any depth of the data set that they read."""
    if not getattr(data, "num_workers", 0):
        return []
    usual = [*map(id, global_generators())]
    own = reached(
        [getattr(data.dataset, "__getitem__", None), data.collate_fn],
        lambda each: is_generator(each) and id(each) not in usual,
    )
    return [
        f"the data set has a random generator of its own ({name}), and each worker has a copy of "
        "it; draw from the generators of torch, NumPy or Python, which workers get anew for each "
        "batch"
        for name in [*own][:1]
    ]


def _reading(data: object) -> list[Callable[..., Any]]:
    """The functions that read data in this process, in which a script may draw random numbers."""
    if getattr(data, "num_workers", 0):
        return []
    dataset, *samplers = (
        getattr(data, name, None) for name in ("dataset", "sampler", "batch_sampler")
    )
    places = [(each, "__iter__") for each in (data, dataset, *samplers)]
    places += [(dataset, "__getitem__"), (data, "collate_fn")]
    found = (getattr(thing, name, None) for thing, name in places)
    return [each for each in found if isinstance(each, FunctionType | MethodType)]


def words_in(functions: Iterable[object]) -> set[str]:
    """The names and texts in the code of functions, and of script functions that they call.

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
            things += [_attributes_of(each).get(name) for name in named]
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
    """The function that a call of `thing` runs, and the object whose method it is."""
    while isinstance(thing, partial):
        thing = thing.func
    owner, function = getattr(thing, "__self__", None), getattr(thing, "__func__", thing)
    if not isinstance(function, FunctionType):
        owner, function = thing, type(thing).__call__ if callable(thing) else None
    return (function, owner) if isinstance(function, FunctionType) else None


def _is_of_a_library(function: FunctionType) -> bool:
    return _is_foreign(function) and (function.__module__ or "").partition(".")[0] in FOREIGN


def _inside(thing: Any, name: str, is_root: bool) -> Iterator[tuple[Any, str]]:
    """The objects inside a thing, each with the expression by which a script would name it."""
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
    elif isinstance(thing, dict | MappingProxyType) and len(thing) <= WIDEST:
        # No other mapping: one that loads its values, such as a file of h5py, would read them.
        yield from ((each, f"{name}[{key!r}]") for key, each in thing.items())
    elif isinstance(thing, list | tuple | set | deque) and len(thing) <= WIDEST:
        yield from ((each, f"{name}[{number}]") for number, each in enumerate(thing))
    elif is_root or _is_of_the_script(thing):
        own = _attributes_of(thing).items()
        yield from ((each, f"{name}.{key}") for key, each in islice(own, WIDEST))
        for kind in type(thing).__mro__:  # a method may call any other one
            if kind.__module__.partition(".")[0] not in FOREIGN:
                yield from ((each, name) for each in vars(kind).values())


def _named_by(function: FunctionType) -> Iterator[tuple[Any, str]]:
    """Cells, globals and defaults of a function, and the function that a decorator wrapped."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield cell.cell_contents, name
        except ValueError:  # a cell that is still empty
            continue
    for name, *rest in _globals_in(function.__code__):
        if name in function.__globals__:
            thing = function.__globals__[name]
            if not rest:
                yield thing, name
            elif isinstance(thing, ModuleType) and _is_users(thing):  # such as helpers.jitter
                yield vars(thing).get(rest[0]), f"{name}.{rest[0]}"
    defaults = function.__defaults__ or ()
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(defaults, arguments[len(arguments) - len(defaults) :], strict=True)
    yield from ((each, name) for name, each in (function.__kwdefaults__ or {}).items())


@lru_cache(maxsize=1024)
def _globals_in(code: CodeType) -> list[tuple[str, ...]]:
    """The names of the globals that a function's code reads, alone and with an attribute."""
    found: dict[tuple[str, ...], None] = {}
    for each in _codes(code):
        last = ""
        for instruction in dis.get_instructions(each):
            if instruction.opname == "LOAD_GLOBAL":
                last = str(instruction.argval)
                found[(last,)] = None
            elif last and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                found[(last, str(instruction.argval))] = None
                last = ""
            elif instruction.opname != "CACHE":
                last = ""
    return [*found]


def _is_users(module: ModuleType) -> bool:
    """True for a module of the script, and not of a library."""
    file = getattr(module, "__file__", None) or ""
    return bool(file) and "site-packages" not in file and not file.startswith(LIBRARIES)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and the code of functions and comprehensions inside it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _is_foreign(function: FunctionType) -> bool:
    file = function.__code__.co_filename
    return "site-packages" in file or file.startswith(LIBRARIES)


def _attributes_of(thing: Any) -> dict[str, Any]:
    """The attributes that an object itself has, those in `__slots__` too."""
    slots = chain.from_iterable(vars(k).get("__slots__", ()) for k in type(thing).__mro__)
    own = {name: getattr(thing, name) for name in slots if hasattr(thing, name)}
    return own | getattr(thing, "__dict__", {})


def _is_of_the_script(thing: Any) -> bool:
    """True for an object with attributes of the script; also for an `Update`."""
    kind = type(thing)
    has_attributes = hasattr(thing, "__dict__") or hasattr(kind, "__slots__")
    if not has_attributes or isinstance(thing, FunctionType):
        return False
    home = kind.__module__.partition(".")[0]
    return is_update(thing) or kind is SimpleNamespace or home not in FOREIGN


def is_update(thing: object) -> bool:
    """True for an `Update`; its room is not imported here, since that would import torch."""
    room: Any = sys.modules.get(UPDATES)
    return room is not None and isinstance(thing, room.Update)

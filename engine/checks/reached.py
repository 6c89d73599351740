"""The objects that functions of a script can reach, and the names in their code."""

from __future__ import annotations

import dis
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import chain, islice, starmap
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from .. import modules
from ..state import (
    LIBRARIES,
    State,
    generators_of,
    global_generators,
    is_by_user,
    is_generator,
    is_users,
)

DEEPEST = 12
"""The most steps from a function to an object, such as `self.agent.nets["target"]`."""
WIDEST = 64
"""The most elements of a container that is searched: a larger container is data."""
MOST = 5_000
"""The most objects that are searched in all."""
FOREIGN = {*sys.stdlib_module_names, "builtins", "torch", "numpy", "camshaft"} - {"__main__"}
"""Packages whose objects and functions are not searched."""
PLAIN = (str, int, float, bool, type(None))
KEYS = frozenset({str, int, float, bool, tuple})
"""Types of keys that can be read in an expression."""
FILLS = frozenset({"append", "extend", "STORE_SUBSCR"})
"""What fills a list or a dict, and reads nothing of it."""
UPDATES = f"{__name__.partition('.engine.')[0]}.engine.update"


class Reach(NamedTuple):
    """A value that a walk has found, and where it is."""

    name: str
    """The expression by which a script would name it."""
    value: Any
    owner: Any = None
    """The thing that has it: an object, a container, a class, a function; None for a root."""
    holder: Any = None
    """What the value is assigned to: the table of the owner's names, or else the owner."""
    key: Any = None
    """The value's key in a table, or an attribute of another holder."""


def search(
    roots: Iterable[tuple[str, Any]], is_leaf: Callable[[Any], bool] = lambda _: False
) -> list[Reach]:
    """The values that can be reached from these roots, each object once.

    The search follows the names in the code of functions and of the script's helpers. It does not
    go into a leaf, the objects of other libraries, or large containers. Of a root without a
    name, all attributes are searched.
    """
    left = deque((found, 0) for found in starmap(Reach, roots))
    whole = [found.value for found, _ in left if not found.name]
    whole = [*map(id, whole), *(id(getattr(each, "__self__", None)) for each in whole)]
    seen = dict[int, Any]()  # the things too, so that no identity is given out twice
    found: list[Reach] = []
    while left and len(seen) < MOST:
        each, depth = left.popleft()
        name, thing, *_ = each
        if isinstance(thing, PLAIN):
            found.append(each)
        elif id(thing) not in seen and not isinstance(thing, ModuleType):
            seen[id(thing)] = thing
            found.append(each)
            if depth < DEEPEST and not (name and is_leaf(thing)):
                left += [(one, depth + 1) for one in reached_in(thing, name, id(thing) in whole)]
    return found


def functions_of(functions: Iterable[object]) -> list[tuple[str, Any]]:
    """Functions, and callable objects of the script, as roots of a walk."""
    return [("self" if is_of_the_script(each) else "", each) for each in functions]


def reached(functions: Iterable[object], wanted: Callable[[Any], bool]) -> dict[str, Any]:
    """By expression: the wanted objects that functions of a script can reach.

    >>> from torch import nn
    >>> target = nn.Linear(2, 1)
    >>> def step(state, batch, nets={"target": target}):
    ...     return nets["target"](batch)
    >>> reached([step], lambda thing: isinstance(thing, nn.Module))
    {"nets['target']": Linear(in_features=2, out_features=1, bias=True)}
    """
    found: dict[str, Any] = {}
    for name, thing, *_ in search(functions_of(functions), wanted):
        if name and not isinstance(thing, (type, *PLAIN)) and wanted(thing):
            found.setdefault(name, thing)
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
    called = (*functions, *modules.hooks_of(objects), *readers_of(data))
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


def readers_of(data: object) -> list[Callable[..., Any]]:
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
    return {word for each in _called_by(functions) for word in _words(each)}


def _words(function: FunctionType) -> set[str]:
    codes = [*_codes(function.__code__)]
    texts = {each for code in codes for each in code.co_consts if isinstance(each, str)}
    return texts.union(*(code.co_names for code in codes))


def _called_by(functions: Iterable[object]) -> list[FunctionType]:
    """Functions of a script, and those that they may call by a name in their code."""
    found = dict[FunctionType, None]()
    left = [each for each in map(_called, functions) if each and not _is_of_a_library(each[0])]
    while left:
        function, owner = left.pop()
        if function in found:
            continue
        found[function] = None
        named = _words(function)
        things = [owner, *(each.value for each in _named_by(function, ""))]
        for each in filter(is_of_the_script, [*things]):
            things += [inner.value for inner in _attributes_in(each, "") if inner.key in named]
        members: list[tuple[Any, Any]] = [
            (getattr(member, "fget", member), each)
            for each in filter(is_of_the_script, things)
            for name in named
            if isinstance(member := getattr(type(each), name, None), FunctionType | property)
        ]
        methods = [MethodType(each, owner) for each, owner in members if each is not None]
        helpers = [each for each in things if isinstance(each, FunctionType | MethodType | partial)]
        called = filter(None, map(_called, [*helpers, *methods]))
        left += [each for each in called if not _is_foreign(each[0])]
    return [*found]


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


def reached_in(thing: Any, name: str, is_root: bool = False) -> list[Reach]:
    """The values inside a thing, each with the expression by which a script would name it."""
    if isinstance(thing, FunctionType):
        return [] if _is_foreign(thing) else _named_by(thing, name)
    if isinstance(thing, MethodType):
        owner = name.rpartition(".")[0] or "self"
        return [Reach(owner, thing.__self__), Reach(name, thing.__func__)]
    if isinstance(thing, partial):
        code = getattr(thing.func, "__code__", None)
        names = code.co_varnames[: len(thing.args)] if code else ()
        names += tuple(f"args[{number}]" for number in range(len(names), len(thing.args)))
        given = zip((*names, *thing.keywords), (*thing.args, *thing.keywords.values()), strict=True)
        return [*starmap(Reach, given), Reach(name, thing.func)]
    if isinstance(thing, dict | MappingProxyType) and len(thing) <= WIDEST:
        # No other mapping: one that loads its values, such as a file of h5py, would read them.
        return [
            Reach(f"{name}[{k!r}]", v, thing, thing, k) for k, v in thing.items() if type(k) in KEYS
        ]
    if isinstance(thing, list | tuple | set | deque) and len(thing) <= WIDEST:
        return [Reach(f"{name}[{number}]", each, thing) for number, each in enumerate(thing)]
    if isinstance(thing, type):
        if not is_by_user(thing):
            return []
        own = [(key, each) for key, each in vars(thing).items() if key[:2] != "__"]
        return [Reach(f"{name}.{key}", each, thing, thing, key) for key, each in own]
    if not (is_root or is_of_the_script(thing)):
        return []
    # A method may call any other one.
    kinds = [k for k in type(thing).__mro__ if k.__module__.partition(".")[0] not in FOREIGN]
    methods = chain.from_iterable(vars(each).values() for each in kinds)
    return [*_attributes_in(thing, name), *(Reach(name, each) for each in methods)]


def _attributes_in(thing: Any, name: str) -> list[Reach]:
    """The attributes that an object itself has, those in `__slots__` too."""
    own = getattr(thing, "__dict__", {})
    found = [Reach(f"{name}.{key}", v, thing, own, key) for key, v in islice(own.items(), WIDEST)]
    for key in chain.from_iterable(vars(k).get("__slots__", ()) for k in type(thing).__mro__):
        if key not in own and hasattr(thing, key):
            found += [Reach(f"{name}.{key}", getattr(thing, key), thing, thing, key)]
    return found


def _named_by(function: FunctionType, name: str) -> list[Reach]:
    """Cells, globals, defaults and attributes of a function, and what a decorator wrapped."""
    code, table, own = function.__code__, function.__globals__, vars(function)
    found = [Reach(f"{name}.{key}", each, function, own, key) for key, each in own.items()]
    for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        with suppress(ValueError):  # a cell that is still empty
            found.append(Reach(key, cell.cell_contents, function, cell, "cell_contents"))
    names = _names_in(code)
    for key in filter(table.__contains__, names):
        thing = table[key]
        found.append(Reach(key, thing, function, table, key))
        if isinstance(thing, ModuleType) and is_users(thing):  # such as helpers.jitter
            inner = vars(thing)
            found += [Reach(f"{key}.{k}", inner[k], thing, inner, k) for k in names if k in inner]
    defaults = function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
    return [
        *found,
        *map(Reach, arguments, defaults),
        *starmap(Reach, (function.__kwdefaults__ or {}).items()),
    ]


@lru_cache(maxsize=1024)
def _names_in(code: CodeType) -> tuple[str, ...]:
    """The names of the globals and attributes in a function's code, and in functions inside it."""
    # In the order of the code: that of a set would differ between two processes.
    return tuple(dict.fromkeys(chain.from_iterable(each.co_names for each in _codes(code))))


def is_only_filled(name: str, functions: Iterable[object], *, is_attribute: bool = False) -> bool:
    """True if functions, and those that they call, use this name only to fill what has it.

    >>> losses, rows, rates = [], {}, [0.1]
    >>> def step(state, batch):
    ...     losses.append(batch * rates[-1])
    ...     rows.setdefault(state.epoch, []).append(batch)
    >>> [is_only_filled(each, [step]) for each in ("losses", "rows", "rates")]
    [True, True, False]
    """
    uses = set[object]()
    for function in _called_by(functions):
        own, of_place = function.__code__, {"LOAD_GLOBAL", "LOAD_NAME"}
        if is_attribute:
            of_place = {"LOAD_ATTR", "LOAD_METHOD"}
        elif name in own.co_freevars:
            of_place |= {"LOAD_DEREF", "LOAD_CLASSDEREF"}
        elif name in own.co_varnames[: own.co_argcount + own.co_kwonlyargcount]:
            of_place |= {"LOAD_FAST"}
        for code in _codes(own):
            said = [each for each in dis.get_instructions(code) if each.opname != "CACHE"]
            for number, each in enumerate(said):
                before = said[number - 1]
                is_local = before.opname == "LOAD_FAST" and before.argval != "self"
                is_of_state = is_attribute and is_local and hasattr(State, name)
                if each.argval == name and each.opname in of_place and not is_of_state:
                    uses.add(_use(said[number + 1 :]))
    return bool(uses) and uses <= FILLS | {"add"}


def _use(following: Sequence[dis.Instruction]) -> object:
    """What is done with a value that was just loaded: a method's name, or an operation.

    For `value[key].append(...)` and `value.setdefault(key, []).append(...)`, it is "append".
    """
    above = 0  # what lies on the value
    for number, each in enumerate(following):
        if above == 0 and not each.opname.startswith(("LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL")):
            is_element = each.opname not in ("LOAD_DEREF", "PUSH_NULL")
            if is_element and each.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                return each.opname
            if is_element:
                use = _use(_after_call(following[number:])) if each.argval == "setdefault" else None
                return use if use in FILLS | {"add"} else each.argval
        if above == 1 and each.opname in ("BINARY_SUBSCR", "STORE_SUBSCR"):
            use = _use(following[number + 1 :]) if each.opname == "BINARY_SUBSCR" else None
            return use if use in FILLS else each.opname  # `add` may be that of a tensor, and read
        if each.opname in ("COPY", "DUP_TOP_TWO"):  # as in value[key] += 1
            return each.opname
        above += dis.stack_effect(each.opcode, each.arg)
        if above < 0:
            return f"{each.opname} of it"
    return None


def _after_call(following: Sequence[dis.Instruction]) -> Sequence[dis.Instruction]:
    """What follows on the call of a method, whose name is loaded first; nothing if none is seen."""
    above = 0
    for number, each in enumerate(following):
        above += dis.stack_effect(each.opcode, each.arg)
        if above == 0 and each.opname == "CALL":
            return following[number + 1 :]
        if above < 0:
            break
    return ()


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and the code of functions and comprehensions inside it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _is_foreign(function: FunctionType) -> bool:
    file = function.__code__.co_filename
    return "site-packages" in file or file.startswith(LIBRARIES)


def is_of_the_script(thing: Any) -> bool:
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

"""The objects that functions of a script can reach, and what the functions do with them."""

from __future__ import annotations

import dis
import re
import sys
import types
from argparse import Namespace
from collections import ChainMap, Counter, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from itertools import chain, islice, starmap
from operator import attrgetter, methodcaller
from threading import local
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary, ref

from .. import modules
from ..events import Events
from ..signals import PACKAGE, is_by_user, is_foreign, is_users
from ..state import (
    GONE,
    Named,
    State,
    generators_of,
    global_generators,
    is_kind_of_generator,
    once_a_type,
)

FEW, WIDEST = 64, 1000
"""Larger containers are searched last, if they are no data; or not at all."""
DATA = "data"
"""The name of a run's data in expressions."""
OF_DATA = (f"{DATA}.", f"{DATA}[", f"[*{DATA}.")
"""How the names of its parts begin: a variable of the script may be called `data_size`."""
OF_SET = "[#"
"""What the names of a set's elements have: they come in another order in each process."""
MOST = 5_000
"""The most objects that are searched in all."""
FOREIGN = {
    *sys.stdlib_module_names,
    *("builtins", "torch", "numpy", PACKAGE),
    *("optuna", "sqlalchemy"),  # a trial of Optuna leads to the whole client of a database
} - {"__main__"}
"""Packages whose objects and functions are not searched."""
WRAPPERS = (FunctionType, property, staticmethod, classmethod, type(lru_cache(id)))
"""Types of what may call one function of a script."""
PLAIN = (str, int, float, bool, type(None), Named)
FILLABLE = (list, set, dict)
WEAK = (WeakSet, WeakKeyDictionary, WeakValueDictionary)
OPEN = (SimpleNamespace, Namespace, UserDict, UserList, ChainMap, local, *WEAK)
"""Classes of Python whose objects hold a script's own values."""
KEYS = frozenset({str, int, float, bool, tuple})
"""Types of keys that can be read in an expression."""
MRO = attrgetter("__mro__")
SLOTS, VALUES = methodcaller("get", "__slots__", ()), methodcaller("values")
NAMES_OF = attrgetter("co_names")
EMPTY = types.CellType()
"""Equal to a cell whose variable has no value yet."""
UPDATES = f"{PACKAGE}.engine.update"
ENGINE = f"{PACKAGE}.engine.engine", "Engine"
KEY = r"(?:(?:LOAD|BUILD|FORMAT|BINARY_OP|\.)\S* )*"
FILLED = re.compile(
    rf"USED (?:\.(?:append|extend|add) |{KEY}(?:STORE_SUBSCR|BINARY_SUBSCR \.(?:append|extend)) "
    rf"|\.setdefault {KEY}CALL \.(?:append|extend|add) )"
)
"""In a code as words: `used.append`, `used[key] =`, `used.setdefault(key, []).append` and so on."""
ASSIGNS = dis.opmap["STORE_GLOBAL"]
MEMBERS = {"LOAD_ATTR", "LOAD_METHOD"}
HIDDEN = {"CACHE", "COPY_FREE_VARS", "NOP", "PRECALL", "PUSH_NULL", "RESUME"}


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
    roots: Iterable[tuple[str, Any]],
    are_leaves: Callable[[type], bool] = lambda _: False,
    is_leaf: Callable[[Any], bool] | None = None,
    names: dict[int, set[str]] | None = None,
) -> list[Reach]:
    """The values that can be reached from these roots, each object once; with `names`, each place.

    The search follows the names in the code of functions and of the script's helpers. It does not
    go into the objects of other libraries, or large containers; of objects of some types and of
    other leaves, only into the script's classes. Of a root without a name, all attributes are
    searched. Into `names` go, by identity, all names of lists, sets and dicts.
    """
    found, left, late = list[Reach](), deque(starmap(Reach, roots)), deque[Reach]()
    seen = dict[int, Any]()  # the things too, so that no identity is given out twice
    whole = [each.value for each in left if not each.name]
    whole = [*map(id, whole), *(id(getattr(each, "__self__", None)) for each in whole)]
    while (left or late) and len(seen) < MOST:
        each = (left or late).popleft()
        name, thing, *_ = each
        if names is not None and isinstance(thing, FILLABLE):
            names.setdefault(id(thing), set()).add(name)
        if type(thing) in PLAIN:
            found.append(each)
        elif isinstance(thing, ModuleType):
            continue
        elif id(thing) not in seen:
            seen[id(thing)] = thing
            found.append(each)
            if name and (are_leaves(type(thing)) or (is_leaf and is_leaf(thing))):
                left += starmap(Reach, classes_of([thing]))
            else:
                inside = reached_in(thing, name, id(thing) in whole)
                (left if len(inside) <= FEW else late).extend(inside)
        elif names is not None and each.holder is not None:
            found.append(each)
    return found


def functions_of(functions: Iterable[object]) -> list[tuple[str, Any]]:
    """Functions, and callable objects of the script, as roots of a walk."""
    return [("self" if is_kind_of_the_script(type(each)) else "", each) for each in functions]


def classes_of(things: Iterable[object]) -> list[tuple[str, Any]]:
    """The script's classes of these things and of the modules in them, for a walk."""
    kinds = dict.fromkeys(map(type, [*things, *modules.all_modules(things)]))
    found = dict.fromkeys(chain.from_iterable(map(MRO, kinds)))
    home = [each for each in found if each.__module__.partition(".")[0] not in FOREIGN]
    return [(each.__name__, each) for each in home if is_by_user(each)]


def reached(functions: Iterable[object], wanted: Callable[[type], bool]) -> dict[str, Any]:
    """By expression: the objects of wanted types that functions of a script can reach.

    >>> from torch import nn
    >>> target = nn.Linear(2, 1)
    >>> def step(state, batch, nets={"target": target}):
    ...     return nets["target"](batch)
    >>> reached([step], lambda kind: issubclass(kind, nn.Module))
    {"nets['target']": Linear(in_features=2, out_features=1, bias=True)}
    """
    found: dict[str, Any] = {}
    for name, thing, *_ in search(functions_of(functions), wanted):
        if name and wanted(type(thing)):
            found.setdefault(name, thing)
    return found


def generators_of_run(
    objects: Mapping[str, Any], functions: Iterable[Callable[..., Any]], data: object = None
) -> dict[str, Any]:
    """By name: the random generators that objects and their modules hold, and functions reach.

    Also those that read `data`. Left out are the generators of Python, NumPy and torch themselves,
    and those that `data` holds.

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
    roots = [*(functions_of([each]) for each in called), classes_of(objects.values())]
    for name, each, *_ in chain.from_iterable(search(e, is_kind_of_generator) for e in roots):
        if name and is_kind_of_generator(type(each)) and id(each) not in seen:
            seen.add(id(each))
            # Two functions may use the same name.
            found[name if name not in found else f"{name} {len(found)}"] = each
    return found


def doubts_of_workers(data: Any) -> list[str]:
    """A sentence if workers copy generators, at any depth of the data set that they read."""
    usual = [*map(id, global_generators())]
    readers = [getattr(data.dataset, "__getitem__", None), data.collate_fn]
    own = [n for n, e in reached(readers, is_kind_of_generator).items() if id(e) not in usual]
    return [
        f"the data set has a random generator of its own ({name}), and each worker has a copy of "
        "it; draw from the generators of torch, NumPy or Python, which workers get anew for each "
        "batch"
        for name in own[:1]
    ]


def readers_of(data: object) -> list[Callable[..., Any]]:
    """The functions that read data in this process, in which a script may draw random numbers."""
    names = ("sampler", "batch_sampler")
    parts = [getattr(data, name, None) for name in names]
    found: list[Any] = [getattr(each, "__iter__", None) for each in parts]
    if not getattr(data, "num_workers", 0):
        samples = getattr(data, "dataset", None)
        found += [getattr(each, "__iter__", None) for each in (data, samples)]
        found += [getattr(samples, "__getitem__", None), getattr(data, "collate_fn", None)]
    return [each for each in found if isinstance(each, FunctionType | MethodType)]


def reached_in(thing: Any, name: str, is_root: bool = False) -> list[Reach]:
    """The values inside a thing, each with the expression by which a script would name it."""
    if isinstance(thing, FunctionType) and not is_foreign(thing.__code__.co_filename):
        return _named_by(thing, name)
    if isinstance(thing, WRAPPERS):  # of a library, such as `torch.no_grad()`
        inner = getattr(thing, "fget", getattr(thing, "__wrapped__", None))
        return [Reach(name, inner)]
    if isinstance(thing, types.BuiltinFunctionType):  # such as the `random` of a generator
        # No list, whose `append` a logger may have: what a function only fills is no part of a run.
        return [Reach(name, thing.__self__)] if is_kind_of_generator(type(thing.__self__)) else []
    if isinstance(thing, MethodType):
        owner = name.rpartition(".")[0] or "self"
        return [Reach(owner, thing.__self__), Reach(name, thing.__func__)]
    if isinstance(thing, partial):
        code = getattr(thing.func, "__code__", None)
        names = code.co_varnames[: len(thing.args)] if code else ()
        names += tuple(f"args[{number}]" for number in range(len(names), len(thing.args)))
        given = zip((*names, *thing.keywords), (*thing.args, *thing.keywords.values()), strict=True)
        return [*starmap(Reach, given), Reach(name, thing.func)]
    if isinstance(thing, ref):
        return [Reach(f"{name}()", thing())]
    is_container = isinstance(thing, dict | types.MappingProxyType | list | tuple | set | deque)
    inner = _in_container(thing, name) if is_container else []
    if isinstance(thing, type):
        table = vars(thing) if is_by_user(thing) else {}
        return [Reach(f"{name}.{k}", table[k], thing, thing, k) for k in table if k[:2] != "__"]
    kind = type(thing)
    value = getattr(thing, "value", None) if kind.__name__ == "Synchronized" else None
    if isinstance(value, float | int):  # of multiprocessing, and so of no data that workers copy
        return [Reach(f"shared {name}", value, {}, thing, "value")]
    if not (is_root or is_kind_of_the_script(kind)):
        if (kind.__module__, kind.__name__) == ENGINE and not thing.has_handlers(Events.SAVING):
            # What it trains inside a function of another run, and does not save.
            inner = [Reach(f"{name}.objects[{key!r}]", e) for key, e in thing.objects.items()]
        return inner
    own = attributes_of(thing)
    slots, members = _members(type(thing))
    found = inner + [Reach(f"{name}.{key}", v, thing, own, key) for key, v in own.items()]
    for key in slots:
        if key not in own and (value := _own(thing, key, EMPTY)) is not EMPTY:
            found.append(Reach(f"{name}.{key}", value, thing, thing, key))
    return found + [Reach(key or name, each) for key, each in members] if members else found


def _in_container(thing: Any, name: str) -> list[Reach]:
    items = [*islice(thing, WIDEST + 1)]  # `len` of a library's tuple may raise: e3nn's Irreps
    if len(items) > (FEW if name.startswith(OF_DATA) else WIDEST):
        return []
    if isinstance(thing, dict | types.MappingProxyType):
        # No other mapping: one that loads its values, such as a file of h5py, would read them.
        own, other = f"{name}[{{!r}}]", f"[*{name}.values()][{{}}]"  # a weight has no text
        texts = (own.format(k) if type(k) in KEYS else other.format(n) for n, k in enumerate(items))
        return [
            Reach(text, thing[k], thing, thing, k) for text, k in zip(texts, items, strict=True)
        ]
    holder = thing if isinstance(thing, list) else None
    begin = OF_SET if isinstance(thing, set) and len(items) > 1 else "["
    return [Reach(f"{name}{begin}{n}]", e, thing, holder, n) for n, e in enumerate(items)]


def _own(thing: object, name: str, default: Any = None) -> Any:
    # Not `getattr`: it would have a class such as SQLAlchemy's compute the value, or fail to.
    try:
        return object.__getattribute__(thing, name)
    except AttributeError:
        return default


def attributes_of(thing: object) -> dict[str, Any]:
    """The attributes of an object, also if its class answers every name, as those of llvmlite."""
    own = thing.__dict__ if isinstance(thing, local) else _own(thing, "__dict__")
    return own if isinstance(own, dict) else {}


@once_a_type
def _members(kind: type) -> tuple[list[str], list[tuple[str, Any]]]:
    """The slots of a class; a script's classes by name, and without one what they define.

    A method may call any other one, and assign to the class.
    """
    slots = chain.from_iterable(map(SLOTS, map(vars, kind.__mro__)))
    own = [each for each in kind.__mro__ if each.__module__.partition(".")[0] not in FOREIGN]
    methods = chain.from_iterable(map(VALUES, map(vars, own)))
    # Not the members of an enum, which would have the name of any other one.
    defined = [("", each) for each in methods if not isinstance(each, kind)]
    return [*slots], defined + [(each.__name__, each) for each in own if is_by_user(each)]


def _named_by(function: FunctionType, name: str) -> list[Reach]:
    """Cells, globals, defaults and attributes of a function, and what a decorator wrapped."""
    code, table, own = function.__code__, function.__globals__, vars(function)
    found = [Reach(f"{name}.{key}", each, function, own, key) for key, each in own.items()]
    for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        if cell != EMPTY:
            found.append(Reach(key, cell.cell_contents, function, cell, "cell_contents"))
    names, made = _names_in(code)
    found += [  # what the function makes may not be there yet
        Reach(k, table.get(k, GONE), function, table, k) for k in names if k in table or k in made
    ]
    seen = set[int]()
    for key, thing, *_ in found:  # which grows by modules in packages, such as helpers.settings
        if isinstance(thing, ModuleType) and is_users(thing) and id(thing) not in seen:
            seen.add(id(thing))
            inner = vars(thing)
            found += [Reach(f"{key}.{k}", inner[k], inner, inner, k) for k in names if k in inner]
    defaults = function.__defaults__ or ()
    arguments = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    given = (*zip(arguments, defaults, strict=True), *(function.__kwdefaults__ or {}).items())
    return [*found, *starmap(Reach, given)]


class Names(NamedTuple):
    """The names in a function's code, and in functions inside it."""

    read: tuple[str, ...]
    """Of globals and attributes, in the order of the code: a set would differ in two processes."""
    made: set[str]
    """The globals that it assigns."""


@lru_cache(maxsize=1024)
def _names_in(code: CodeType) -> Names:
    codes, made = _codes(code), set[str]()
    for each in codes:
        if ASSIGNS in each.co_code[::2]:  # few functions do, and to take one apart takes long
            made |= {one.argval for one in dis.get_instructions(each) if one.opcode == ASSIGNS}
    return Names(tuple(dict.fromkeys(chain.from_iterable(map(NAMES_OF, codes)))), made)


def _codes(code: CodeType) -> list[CodeType]:
    """A function's code, and the code of functions and comprehensions inside it."""
    found = [code]
    for each in found:  # which grows
        found += [inner for inner in each.co_consts if isinstance(inner, CodeType)]
    return found


def called_by(functions: Iterable[object]) -> set[CodeType]:
    """The code of functions, and of those that they name, and so may call, of what they reach."""
    given = [getattr(each, "func", each) for each in functions]  # of a partial
    reach = search(functions_of(functions))
    own = [each for each in reach if isinstance(each.value, FunctionType)]
    named = {each.value.__code__: {each.name.rpartition(".")[2]} for each in own}
    called = {code for each in given if (code := getattr(each, "__code__", None))}
    called |= {code for code in named if code.co_name == "__call__"}
    while True:
        names = set(chain.from_iterable(_names_in(each).read for each in called))
        more = {c for c in named.keys() - called if (named[c] | {c.co_name}) & names}
        if not more:
            return called
        called |= more


def mentions(functions: Iterable[object], name: str) -> bool:
    """True if the code of functions, or of those that they may call, has a name, as of a method."""
    return any(name in _names_in(code).read for code in called_by(functions))


def is_only_filled(names: Iterable[str], codes: Iterable[CodeType]) -> bool:
    """True if this code, of `called_by`, uses a thing of these names only to fill it.

    >>> losses, rows, rates = [], {}, [0.1]
    >>> def step(state, batch):
    ...     losses.append(batch * rates[-1])
    ...     rows.setdefault(state.epoch, []).append(batch)
    >>> codes = called_by([step])
    >>> [is_only_filled([each], codes) for each in ("losses", "rows", "rates", "self.losses")]
    [True, True, False, False]
    """
    uses, filled = 0, 0
    for name in names:
        owner, _, key = name.partition(" ")[0].rpartition(".")
        if key.endswith("]"):  # whatever reads its container may read it
            return False
        texts = [_as_words(code, key, is_attribute=bool(owner)) for code in codes]
        uses += sum(each.count("USED ") for each in texts)
        filled += sum(len(FILLED.findall(each)) for each in texts)
    return 0 < uses == filled


def keys_of(name: str, codes: Iterable[CodeType]) -> set[str]:
    """The names that code compares and assigns where it assigns this one, as keys of a cache.

    What is read for anything else, such as a count, is no mere key.
    """
    read, compared = Counter[Any](), Counter[Any]()
    for code in codes:
        operations = _operations(code)
        read.update(argument for what, argument in operations if what[:5] == "LOAD_")
        stored = {argument for what, argument in operations if what[:6] == "STORE_"}
        for n, (what, argument) in enumerate(operations if name in stored else ()):
            if what == "COMPARE_OP" and argument in ("==", "!="):
                near = {one for _, one in operations[max(0, n - 6) : n]}
                compared.update(stored & near - {name})
    return {each for each, times in compared.items() if read[each] == times}


def _as_words(function: CodeType, name: str, *, is_attribute: bool) -> str:
    """A function's operations in a row, with USED for each that reads the name."""
    reads = {"LOAD_GLOBAL", "LOAD_NAME"}
    if is_attribute:
        reads = MEMBERS
    elif name in function.co_freevars:
        reads |= {"LOAD_DEREF", "LOAD_CLASSDEREF"}
    elif name in function.co_varnames[: function.co_argcount + function.co_kwonlyargcount]:
        reads |= {"LOAD_FAST"}
    words, before = list[str](), ""
    for what, argument in chain.from_iterable(map(_operations, _codes(function))):
        # An attribute of an argument may be that of the state.
        is_of_state = is_attribute and before == "LOAD_FAST" and hasattr(State, name)
        if argument == name and what in reads and not is_of_state:
            words.append("USED")
        else:
            words.append(f".{argument}" if what in MEMBERS else what)
        before = what if argument != "self" else ""
    return " ".join(words) + " "


@lru_cache(maxsize=4096)
def _operations(function: CodeType) -> list[tuple[str, Any]]:
    """The operations of a function with their arguments, as Python 3.11 names them."""
    found = list[tuple[str, Any]]()
    for each in dis.get_instructions(function):
        # Later ones have LOAD_FAST_BORROW, and LOAD_FAST_LOAD_FAST of two variables.
        if fast := re.findall("(LOAD|STORE)_FAST", each.opname):
            names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
            found += ((f"{part}_FAST", name) for part, name in zip(fast, names, strict=False))
        elif each.opname not in HIDDEN:
            found.append((each.opname, each.argval))
    return found


@once_a_type
def is_kind_of_the_script(kind: type) -> bool:
    """True for a class whose objects have attributes of the script; also for an `Update`."""
    is_home = kind.__module__.partition(".")[0] not in FOREIGN
    is_home = is_home or kind.__module__.startswith("torch.utils.data")  # such as a Subset
    has_attributes = bool(kind.__dictoffset__) or hasattr(kind, "__slots__")
    return (has_attributes or issubclass(kind, local)) and (
        is_home or kind in OPEN or is_kind_of_update(kind)
    )


@once_a_type
def is_kind_of_update(kind: type) -> bool:
    """True for the class `Update`; its room is not imported here, since that would import torch."""
    room: Any = sys.modules.get(UPDATES)
    return room is not None and issubclass(kind, room.Update)


@once_a_type
def trains(kind: type) -> bool:
    """True for a class of modules or optimizers."""
    return modules.is_kind_of_module(kind) or hasattr(kind, "add_param_group")

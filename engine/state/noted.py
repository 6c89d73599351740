"""Settings and small values by place: what they were, what has changed, how to put them back."""

from __future__ import annotations

import os
import sys
import zlib
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from operator import call, setitem
from pathlib import Path
from types import CellType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from weakref import ref

ROOT = Path(__file__).parents[2]
LIBRARIES = (
    *(str(ROOT / room) for room in ("engine", "handlers")),
    *("<string>", "<frozen"),  # a dataclass's __init__, and Python's own
    str(Path(os.__file__).parent),
)
"""Beginnings of the file paths of code that is not the script's; so is what pip installs."""
WIDEST = 64
"""The most elements of a container whose tensors are looked at, each one, in each save."""
MANY = 10_000
"""The most values of a container that a checkpoint holds with the run: more of them are data."""
LARGEST = 2**24
"""The most bytes of tensors and arrays that a checkpoint holds with the run, for each value."""
SIMPLE = frozenset({type(None), bool, int, float, str, bytes})
MAPPINGS: frozenset[Any] = frozenset({dict, OrderedDict, Counter, defaultdict})
CONTAINERS: frozenset[Any] = MAPPINGS | {list, tuple, set, deque}
DEEPEST = 8
GONE: Any = object()


class Spot(NamedTuple):
    """Where a value is: how to read it without a call of Python, and how to assign another one."""

    read: Callable[[], Any]
    write: Callable[[Any], Any] | None = None
    """None if a value can only be changed in place."""


class SettingsNoted:
    """Values by place as they were noted, and tables, in which new names may come."""

    def __init__(self) -> None:
        self._places: dict[str, Spot] = {}
        self._reads: list[Callable[[], Any]] = []
        self._before: list[tuple[str, Any]] = []
        self._marks: list[tuple[str, Any]] = []
        """What tells of a change inside a value, of those that can change in place."""
        self._tables: dict[str, tuple[dict[Any, Any], frozenset[Any]]] = {}
        """By the name of the owner: names with values, and those that are known."""
        self._sizes: list[int] = []
        self._seen: set[tuple[int, Any]] = set()

    def note(self, name: str, value: Any, place: Spot) -> None:
        """Note the value that is at a place now."""
        first, number = name, 1
        while name in self._places:  # two functions use one name
            name, number = f"{first} {number + 1}", number + 1
        self._places[name] = place
        if type(value) in SIMPLE or extent_of(value) is None or _is_constant(value):
            self._reads.append(place.read)
            self._before.append((name, value))
        else:
            self._marks.append((name, _mark(value)))

    def note_key(self, name: str, value: Any, holder: Any, key: Any) -> None:
        """Note the value of a key in a table, or of an attribute of another holder; each once."""
        if (id(holder), key) not in self._seen:
            self._seen.add((id(holder), key))
            self.note(name, value, _place_of(holder, key))

    def note_table(self, name: str, table: dict[Any, Any]) -> None:
        """Note which names are in a table, so that new ones are found."""
        if name not in self._tables:
            self._tables[name] = table, frozenset(table)
            self._sizes.append(len(table))

    def place(self, name: str) -> Spot | None:
        """The place with this name, also of a new name in a known table."""
        owner, _, key = name.rpartition(".")
        if name not in self._places and owner in self._tables:
            return _place_of(self._tables[owner][0], key)
        return self._places.get(name)

    def changed(self) -> Iterator[tuple[str, Any, Any]]:
        """The names and values that differ from what was noted, and what was there before."""
        now, before = [*map(call, self._reads)], self._before
        try:  # in one pass without calls, since there may be thousands
            moved = [
                (*before[n], value)
                for n, value in enumerate(now)
                if value is not before[n][1] and value != before[n][1]
            ]
        except Exception:  # a number has become a tensor or an array
            moved = [
                (*before[n], value)
                for n, value in enumerate(now)
                if value is not before[n][1] and not _are_same(value, before[n][1])
            ]
        yield from ((name, value, was) for name, was, value in moved)
        for name, was in self._marks:
            if not _are_same(_mark(value := self._places[name].read()), was):
                yield name, value, was
        if [*map(len, (each for each, _ in self._tables.values()))] != self._sizes:
            for name, (table, known) in self._tables.items():
                new = sorted(key for key in table.keys() - known if type(key) is str)
                yield from ((f"{name}.{key}", table[key], None) for key in new)


def _place_of(holder: Any, key: Any) -> Spot:
    """The place of a name in a table, or of an attribute of a cell, a class or another object."""
    if isinstance(holder, dict):
        return Spot(partial(dict.get, holder, key, GONE), partial(setitem, holder, key))
    # Not `setattr` for objects: a frozen dataclass refuses it, and a setter may do more.
    write: Any = setattr if isinstance(holder, CellType | type) else object.__setattr__
    return Spot(partial(getattr, holder, key, GONE), partial(write, holder, key))


def is_by_user(defined: Any) -> bool:
    """True for a class or a function that the script defines, and not a library."""
    return is_users(sys.modules.get(getattr(defined, "__module__", None) or ""))


@lru_cache(maxsize=1024)
def is_users(module: ModuleType | None) -> bool:
    """True for a module of the script, and not of a library."""
    file = getattr(module, "__file__", None)
    if file is None:  # such as a notebook
        return module is not None and module.__name__ == "__main__"
    return "site-packages" not in file and not file.startswith(LIBRARIES)


def is_noted(owner: Any) -> bool:
    """True for what holds a script's own values: its functions, classes, objects, dicts."""
    kind = type(owner)
    if isinstance(owner, FunctionType | dict | type) or kind in (SimpleNamespace, Namespace):
        return True
    return is_by_user(kind)


def extent_of(value: Any, depth: int = DEEPEST) -> tuple[int, int] | None:
    """How many plain values, tensors and arrays these are, and their bytes; None for others."""
    kind = type(value)
    if kind in SIMPLE:
        return 1, 0
    if is_plain_tensor(value):
        is_dense = not value.is_meta and str(value.layout) == "torch.strided"
        return (1, value.nbytes) if is_dense else None
    if is_numpy(value):
        return None if value.dtype.hasobject else (1, value.nbytes)
    if kind not in CONTAINERS or not depth:
        return None
    if kind in MAPPINGS | {set} and not all(map(_is_key, value)):
        return None
    items: Iterable[Any] = value.values() if kind in MAPPINGS else value
    if len(value) > MANY:
        return (len(value), 0) if SIMPLE.issuperset(map(type, items)) else None
    weights = [extent_of(each, depth - 1) for each in items]
    if None in weights:
        return None
    found = [each for each in weights if each is not None]
    return max(1, sum(count for count, _ in found)), sum(size for _, size in found)


def copy_of(value: Any) -> Any:
    """A copy of a value, without the graph of tensors, as a checkpoint can hold it."""
    if is_plain_tensor(value):
        return value.detach().clone()
    if is_numpy(value):
        return value.copy()
    make: Any = type(value)
    if make in MAPPINGS:
        items = {key: copy_of(each) for key, each in value.items()}
        return make(items) if make in (OrderedDict, Counter) else items
    if make in CONTAINERS:
        return make(map(copy_of, value)) if make is not deque else list(map(copy_of, value))
    return value


def assign(place: Spot, value: Any) -> None:
    """Give a place a value; what is there stays the same object if it can take the value."""
    now = place.read()
    if value is not GONE:
        new = _taken(now, value)
        if new is not now and place.write is not None:
            place.write(new)
    elif isinstance(place.write, partial) and place.write.func is setitem:
        table, key = place.write.args  # the name came later
        table.pop(key, None)


def _taken(now: Any, value: Any) -> Any:
    """What is there, with the content of a value; the value itself if it is of another form."""
    if is_plain_tensor(now) and is_plain_tensor(value):
        if (now.shape, now.dtype, now.is_inference()) != (value.shape, value.dtype, False):
            return value.to(now.device)
        now.data.copy_(value)
    elif is_numpy(now) and is_numpy(value) and (now.shape, now.dtype) == (value.shape, value.dtype):
        now[...] = value
    elif type(now) in (list, deque) and type(value) is list:
        rest = [None] * (len(value) - len(now))
        items = list(map(_taken, [*now, *rest], value))
        now.clear()
        now.extend(items)
    elif type(now) in MAPPINGS and type(value) in MAPPINGS:
        found = {key: _taken(now.get(key), each) for key, each in value.items()}
        now.clear()
        now.update(found)
    elif type(now) is set and type(value) is set:
        now.clear()
        now.update(value)
    else:
        return value
    return now


def _mark(value: Any, depth: int = DEEPEST) -> Any:
    """What tells of a change: it equals another mark of the same unchanged value, and no other."""
    kind = type(value)
    if is_plain_tensor(value):
        return _Same(value), _numbers_of(value)
    if is_numpy(value):
        return _Same(value), zlib.crc32(_bytes_of(value))
    if kind not in CONTAINERS or not depth:
        return value if kind in SIMPLE else _Same(value)
    if kind not in MAPPINGS and SIMPLE.issuperset(map(type, value)):
        return value if kind is tuple else value.copy()
    if len(value) > WIDEST:  # of tensors: too many to look at each one in each save
        return len(value)
    if kind in MAPPINGS:
        return {key: _mark(each, depth - 1) for key, each in value.items()}
    return [_mark(each, depth - 1) for each in value]


class _Same:
    """Equal to another one of the same object, which it does not keep alive."""

    __slots__ = ("_of",)

    def __init__(self, thing: Any) -> None:
        try:
            self._of: Callable[[], Any] = ref(thing)
        except TypeError:
            self._of = partial([thing].__getitem__, 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and (own := self._of()) is not None and own is other._of()

    __hash__ = None  # type: ignore[assignment]


def _numbers_of(tensor: Any) -> Any:
    """The count of a tensor's changes; of a small one on the CPU the numbers too, for `.data`."""
    count = -1 if tensor.is_inference() else tensor._version
    if tensor.device.type != "cpu" or tensor.nbytes > 2**20 or not tensor.is_contiguous():
        return count
    own = tensor.detach().reshape(-1).view(sys.modules["torch"].uint8)
    return count, zlib.crc32(own.numpy())


def _bytes_of(array: Any) -> bytes:
    """The bytes of an array; of a large one, of some numbers, with those at its beginning."""
    step = max(1, array.size // 4096) if array.nbytes > LARGEST else 1
    found: bytes = (array.reshape(-1)[::step] if step > 1 else array).tobytes()
    return found


def _is_key(value: Any) -> bool:
    return type(value) in SIMPLE or _is_constant(value)


def _is_constant(value: Any) -> bool:
    return type(value) is tuple and SIMPLE.issuperset(map(type, value))


def have_same_content(one: Any, other: Any) -> bool:
    """True if two values of any kind have the same content."""
    if is_plain_tensor(one) and is_plain_tensor(other):
        return bool(sys.modules["torch"].equal(one.cpu(), other.cpu()))
    if type(one) in CONTAINERS and type(other) in CONTAINERS and len(one) == len(other):
        if type(one) in MAPPINGS:
            return one.keys() == other.keys() and all(
                have_same_content(one[k], other[k]) for k in one
            )
        return one == other if isinstance(one, set) else all(map(have_same_content, one, other))
    return _are_same(one, other)


def _are_same(one: Any, other: Any) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:
        return False


def is_plain_tensor(value: Any) -> bool:
    """True for a tensor of torch itself, and not of another class, such as a shard."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)


def is_numpy(value: Any) -> bool:
    """True for an array of NumPy."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray

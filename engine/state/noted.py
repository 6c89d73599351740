"""Settings and small values by place: what they were, what has changed, how to put them back."""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from enum import Enum
from functools import partial
from operator import call, is_, setitem
from types import CellType
from typing import Any, NamedTuple
from weakref import ref

from .values import (
    FACTORIES,
    PLAIN,
    SEQUENCES,
    Named,
    is_any_array,
    is_any_tensor,
    is_plain_tensor,
    like,
    mapped,
    same_states,
    walk,
)

MANY = 10_000
"""The most values of a container that a checkpoint holds with the run: more of them are data."""
LARGEST = 2**24
"""The most bytes of tensors and arrays that a checkpoint holds with the run, for each value."""
WIDEST = 1024
"""The most tensors and containers in a value that are looked at, each one, in each save."""
DEEPEST = 8
MAPPINGS: frozenset[Any] = frozenset({dict, OrderedDict, Counter, defaultdict})
CONTAINERS: frozenset[Any] = MAPPINGS | {list, tuple, set, deque}
BUFFERS = frozenset({array, bytearray, memoryview})
GONE: Any = Named("")
"""Stands for what is not there, such as a removed name."""
TOO_LARGE: Any = object()


class Spot(NamedTuple):
    """Where a value is: how to read it without a call of Python, and how to assign another one."""

    read: Callable[[], Any]
    write: Callable[[Any], Any] | None = None
    """None if a value can only be changed in place."""


class SettingsNoted:
    """Values by place as they were noted, and tables, in which new names may come."""

    def __init__(self, held: Container[int] = ()) -> None:
        """Note nothing yet; `held` has the identities of tensors that others save."""
        self._held = held
        self._places: dict[str, Spot] = {}
        self._reads: list[Callable[[], Any]] = []
        self._before: list[tuple[str, Any]] = []
        self._marks: list[tuple[str, Any]] = []
        """What tells of a change inside a value, of those that can change in place."""
        self._tables: dict[str, tuple[Any, Any, frozenset[Any]]] = {}
        """By the name of the owner: names with values, what takes new ones, and known names."""
        self._sizes: list[int] = []
        self._seen: set[tuple[int, Any]] = set()

    def note(
        self, name: str, value: Any, place: Spot | None = None, *, is_known: bool = False
    ) -> None:
        """Note the value that is at a place now; without one, what changes in the value itself.

        Of one that `is_known` from another place, which object it is.
        """
        place = place or Spot(partial([value].__getitem__, 0))
        first, number = name, 1
        while name in self._places:  # two functions use one name
            name, number = f"{first} {number + 1}", number + 1
        self._places[name] = place
        is_fixed = type(value) in PLAIN or _is_constant(value) or extent_of(value) is None
        if is_known or is_fixed:
            self._reads.append(place.read)
            self._before.append((name, value))
        if not is_fixed:  # also at a further place, since another thing may come to the first one
            self._marks.append((name, _mark(value, self._held)))

    def note_key(
        self, name: str, value: Any, holder: Any, key: Any, *, is_known: bool = False
    ) -> None:
        """Note the value of a key in a table, or of an attribute of another holder; each once."""
        if (id(holder), key) not in self._seen:
            self._seen.add((id(holder), key))
            self.note(name, value, _place_of(holder, key), is_known=is_known)

    def note_table(self, name: str, table: Any, holder: Any = None) -> None:
        """Note which names are in a table, or how many elements in a list, to find new ones.

        The `holder` is the class that has the table.
        """
        if name not in self._tables:
            known = range(len(table)) if isinstance(table, list) else table
            self._tables[name] = table, holder or table, frozenset(known)
            self._sizes.append(len(table))

    def places(self, names: Iterable[str]) -> dict[str, Spot]:
        """The places with these names, also of new names in known tables."""
        found = dict[str, Spot]()
        for name in names:
            owner, _, key = name.rpartition(".")
            if name in self._places:
                found[name] = self._places[name]
            elif owner in self._tables:
                table, holder, _ = self._tables[owner]
                found[name] = _place_of(holder, int(key) if isinstance(table, list) else key)
        return found

    def shared(self, values: Mapping[str, Any]) -> set[str]:
        """The names of what is at several places, of which some get another value."""
        held = defaultdict[int, list[tuple[str, Any]]](list)
        for name, place in self._places.items():
            now = place.read()
            new = dict(walk(values.get(name, GONE), depth=DEEPEST, inside=_inside))
            for path, each in walk(now, depth=DEEPEST, inside=_inside):
                if is_plain_tensor(each) or (each is now and type(each) in CONTAINERS):
                    held[id(each)].append((name if each is now else "", new.get(path, GONE)))
        apart = [
            {name for name, _ in group}
            for group in held.values()
            if not all(same_states(new, group[0][1]) for _, new in group)
        ]
        return set[str]().union(*apart)

    def copies(self, names: Iterable[str] = ()) -> dict[str, Any]:
        """By name: copies of all values as they are now; `TOO_LARGE` of those that are.

        Args:
            names: Names that have come since, in known tables.
        """
        places = self._places | self.places(names)
        return {name: _kept(place.read(), self._held) for name, place in places.items()}

    def changed(self) -> Iterator[tuple[str, Any, Any]]:
        """The names and values that differ from what was noted, and what was there before."""
        # In one pass without calls, since there may be thousands; most values are the same objects.
        pairs = [*zip(self._before, [*map(call, self._reads)], strict=True)]
        moved = [(n, v, was) for (n, was), v in pairs if v is not was and not _equal(v, was)]
        yield from moved
        inside = set[int]()
        for name, was in self._marks:
            if not _equal(_mark(value := self._places[name].read(), self._held), was):
                inside.add(id(value))
                yield name, value, was
        if inside:  # and where they are, too: so they stay one object
            yield from ((n, v, was) for (n, was), v in pairs if v is was and id(v) in inside)
        if [*map(len, (table for table, *_ in self._tables.values()))] != self._sizes:
            for name, (table, holder, known) in self._tables.items():
                if isinstance(table, list):  # of values, a list may be a record of its process
                    count = range(len(known), len(table))
                    new: Any = [n for n in count if extent_of(table[n]) is None]
                else:
                    own = "__" if isinstance(holder, type) else ()  # Python's, in a class
                    keys = (key for key in table.keys() - known if type(key) is str)
                    new = sorted(key for key in keys if not key.startswith(own))
                yield from ((f"{name}.{key}", table[key], None) for key in new)


def _item(items: list[Any], number: int) -> Any:
    return items[number] if number < len(items) else GONE


def _set_item(items: list[Any], number: int, value: Any) -> None:
    items[number : number + 1] = [value]


class Mark(tuple[Any, ...]):
    """What tells of a change in what no checkpoint holds, such as a table."""

    __slots__ = ()


def content_of(thing: Any) -> Spot:
    """The place of what changes inside a container, array, tensor or table of any class."""
    if isinstance(thing, (dict, set, *SEQUENCES, *BUFFERS)):
        return Spot(partial(_items_of, thing), partial(_refill, thing))
    own: Any = None
    if is_any_array(thing):
        own = thing.view(sys.modules["numpy"].ndarray)
    elif is_any_tensor(thing) and str(thing.layout) == "torch.strided":
        torch: Any = sys.modules["torch"]
        if type(thing).__torch_dispatch__ == torch.Tensor.__torch_dispatch__:  # no shard
            with torch._C.DisableTorchFunctionSubclass():
                own = thing.detach().as_subclass(torch.Tensor)
    return Spot(partial([own].__getitem__, 0) if _is_numbers(own) else partial(_mark_of, thing))


def _items_of(thing: Any) -> Any:
    if type(thing) in BUFFERS:
        return bytes(thing)
    is_dict = isinstance(thing, dict)
    return (tuple(dict.keys(thing)), tuple(dict.values(thing))) if is_dict else tuple(thing)


def _mark_of(table: Any) -> Mark:
    if hasattr(table, "iloc") or is_any_array(table):  # of pandas, and of objects; some rows
        rows = table[:: 1 + table.size // MANY] if len(table.shape) else table
        return Mark([table.shape, repr(getattr(rows, "to_numpy", lambda: rows)().tolist())])
    if is_any_tensor(table):  # a sparse one, or a shard
        return Mark([table._version])
    own = table.state_dict() if hasattr(table, "state_dict") else getattr(table, "__dict__", {})
    numbers = filter(_is_numbers, own.values())
    return Mark(_mark(e, ())[-1] if is_any_array(e) else _numbers_of(e) for e in numbers)


def _refill(items: Any, values: Any) -> None:
    if type(items) in BUFFERS:
        own = items.cast("B") if type(items) is memoryview else items
        own[:] = array(items.typecode, values) if type(items) is array else values
        return
    base: Any = next(each for each in type(items).__mro__ if each in CONTAINERS)
    base.clear(items)
    values = zip(*values, strict=True) if base in MAPPINGS else values
    (base.update if hasattr(base, "update") else base.extend)(items, values)


def _place_of(holder: Any, key: Any) -> Spot:
    """The place of a name in a table, or of an attribute of a cell, a class or another object."""
    if isinstance(holder, dict):
        return Spot(partial(dict.get, holder, key, GONE), partial(setitem, holder, key))
    if isinstance(holder, list):
        return Spot(partial(_item, holder, key), partial(_set_item, holder, key))
    # Not `setattr` for objects: a frozen dataclass refuses it, and a setter may do more.
    write: Any = setattr if isinstance(holder, CellType | type) else object.__setattr__
    return Spot(partial(getattr, holder, key, GONE), partial(write, holder, key))


def extent_of(value: Any, held: Container[int] = ()) -> tuple[int, int] | None:
    """How many plain values, tensors and arrays these are, and their bytes; None for others.

    Tensors in `held` count no bytes, since others save them.
    """
    if type(value) in PLAIN:
        return 1, 0
    count = size = 0
    for _, each in walk(value, depth=DEEPEST, inside=_inside):
        kind = type(each)
        if kind in CONTAINERS:
            items = each.values() if kind in MAPPINGS else each
            count += sum(map(PLAIN.__contains__, map(type, items)))
            if kind in MAPPINGS | {set} and not all(
                _is_constant(key) or isinstance(key, Enum) or hasattr(key, "requires_grad_")
                for key in each  # also tensors and modules, by their names
            ):
                return None
        elif issubclass(kind, Enum) and each is not value:  # which has a name of its own
            count += 1
        elif _is_numbers(each):
            count, size = count + 1, size + (0 if id(each) in held else each.nbytes)
        else:
            return None
        if count > MANY:
            break
    return max(1, count), size


def _kept(value: Any, held: Container[int]) -> Any:
    """A copy of a small value; of a container of other things, another container of these."""
    if (extent := extent_of(value, held)) is not None:
        return copy_of(value, held) if extent[1] <= LARGEST else TOO_LARGE
    return copy(value) if type(value) in CONTAINERS else value


def copy_of(value: Any, held: Container[int] = ()) -> Any:
    """A copy of a value, without the graph of tensors, as a checkpoint can hold it.

    Tensors in `held` stay the same objects.
    """
    return mapped(value, lambda each: each if id(each) in held else _copied(each))


def packed(value: Any, names: Mapping[int, str], held: Container[int] = ()) -> Any:
    """A copy of a value for a checkpoint; `unpacked` makes it again, also in another process.

    Args:
        value: Plain values, tensors and arrays, in containers.
        names: By identity: the names of the weights and modules that may be keys.
        held: The identities of weights that others save: of them, the value has the names.

    Raises:
        KeyError: A key is another tensor or module.
    """
    if isinstance(value, dict):
        items = {_key(key, names): packed(each, names, held) for key, each in value.items()}
        factory = getattr(value, "default_factory", int)  # other dicts have none
        return like(value, items) if factory in FACTORIES.values() else items
    if type(value) in (list, tuple, deque):
        return like(value, [packed(each, names, held) for each in value])
    if type(value) is set:
        return {_key(each, names) for each in value}
    is_weight = is_plain_tensor(value) and id(value) in held and id(value) in names
    is_named = is_weight or isinstance(value, Enum)
    return Named(names[id(value)]) if is_named else _copied(value)


def _key(key: Any, names: Mapping[int, str]) -> Any:
    if type(key) is int and key in names:
        return Named(names[key], is_id=True)
    return key if _is_constant(key) else Named(names[id(key)])


def unpacked(value: Any, things: Mapping[str, Any]) -> Any:
    """What was packed, with the objects of these names; what stands for others stays."""
    if isinstance(value, Named):
        made = GONE if value == GONE else things.get(value.name, value)
        return id(made) if value.is_id and made is not value else made
    if isinstance(value, dict):
        items = value.items()
        return like(value, {unpacked(k, things): unpacked(each, things) for k, each in items})
    if type(value) in (list, tuple, deque, set):
        return like(value, [unpacked(each, things) for each in value])
    return value


def _copied(value: Any) -> Any:
    if is_plain_tensor(value):
        return value.detach().clone()
    if is_any_array(value):  # of one in a file, the numbers
        return sys.modules["numpy"].array(value)
    return value.copy() if type(value) is set else value


def assign(place: Spot, value: Any, is_shared: bool = False) -> None:
    """Give a place a value; what is there stays the same object if it can take the value.

    One that is `shared` with a place of another value is replaced.
    """
    now = GONE if is_shared else place.read()
    if value is not GONE:
        new = _taken(now, value)
        if new is not now and place.write is not None:
            place.write(new)
    elif isinstance(place.write, partial) and place.write.func in (setitem, _set_item, setattr):
        table, key = place.write.args  # the name came later, or is gone
        if isinstance(table, list):
            del table[key:]
        elif isinstance(table, dict):
            table.pop(key, None)
        elif isinstance(table, type) and key in vars(table):
            delattr(table, key)


def _taken(now: Any, value: Any) -> Any:
    """What is there, with the content of a value; the value itself if it is of another form.

    A parameter replaces what is there: it is a weight of the script, and no copy.
    """
    if value is now or type(value).__name__ == "Parameter":
        return value
    if is_plain_tensor(now) and is_plain_tensor(value):
        is_alike = (now.shape, now.dtype, now.is_inference()) == (value.shape, value.dtype, False)
        if not is_alike or 0 in now.stride():  # one of `expand` has fewer numbers than its shape
            return value.to(now.device)
        now.data.copy_(value)
    elif is_any_array(now) and is_any_array(value):
        if (now.shape, now.dtype) != (value.shape, value.dtype):
            return value
        now[...] = value
    elif type(now) is type(value) is tuple and len(now) == len(value):
        made = tuple(map(_taken, now, value))  # its tensors may be elsewhere, too
        return now if all(map(is_, made, now)) else made
    elif type(value) in (list, deque) and _fits(now, value):
        items = list(map(_taken, [*now, *[None] * (len(value) - len(now))], value))
        now.clear()
        now.extend(items)
    elif type(value) in MAPPINGS | {set} and _fits(now, value):
        if type(value) is not set:
            value = {key: _taken(now.get(key), each) for key, each in value.items()}
        now.clear()
        now.update(value)
    else:
        return value
    return now


def _fits(now: Any, value: Any) -> bool:
    """True if a container can take the items of a value; a dict stands for those of any factory."""
    if type(now) is not type(value):
        return type(value) is dict and type(now) in MAPPINGS
    return all(getattr(now, e, 0) == getattr(value, e, 0) for e in ("maxlen", "default_factory"))


def _mark(value: Any, held: Container[int]) -> list[Any]:
    """What tells of a change: it equals another mark of the same unchanged value, and no other.

    Of tensors in `held` it tells which they are, and not their numbers.
    """
    found: list[Any] = [] if type(value) in (tuple, bytes) else [id(value)]
    for _, each in walk(value, depth=DEEPEST, inside=_inside):
        kind = type(each)
        if len(found) > WIDEST:  # too many to look at each one in each save
            with suppress(TypeError):  # with tensors
                if (extent_of(value) or (MANY,))[0] < MANY:
                    return [json.dumps(value)]
            return [len(value), *map(id, value.values() if isinstance(value, dict) else value)]
        if kind in MAPPINGS:
            found.append([(k, v if type(v) in PLAIN else kind) for k, v in [*each.items()]])
        elif kind is set:
            found.append(each.copy())
        elif kind in CONTAINERS:
            found.append([v if type(v) in PLAIN else kind for v in each])
        elif is_plain_tensor(each) and id(each) not in held:
            found += _Same(each), _numbers_of(each)
        elif is_any_array(each):  # of a large one, some numbers
            own = each.reshape(-1)[:: max(1, each.size // 4096)] if each.nbytes > LARGEST else each
            found += _Same(each), zlib.crc32(own.tobytes())
        else:
            found.append(each if kind in PLAIN else _Same(each))
    return found


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


def _inside(value: Any) -> Any:
    """What a container holds; not what a class of its own or a set does."""
    kind = type(value)
    if kind in MAPPINGS:
        items = [*value.items()]  # another thread may change it
        if items and not _is_constant(items[0][0]):  # the text of a weight is all its numbers
            return [*enumerate(each for _, each in items)]
        return items
    return [*enumerate(value)] if kind in CONTAINERS and kind is not set else None


def _is_constant(value: Any) -> bool:
    return type(value) in PLAIN or (type(value) is tuple and PLAIN.issuperset(map(type, value)))


def _is_numbers(value: Any) -> bool:
    """True for a tensor, array or scalar of torch's and NumPy's own classes, with bytes at hand."""
    if is_plain_tensor(value):
        return not value.is_meta and str(value.layout) == "torch.strided"
    if type(value).__module__ != "numpy":
        return False
    numpy: Any = sys.modules["numpy"]
    is_known = type(value) is numpy.ndarray or isinstance(value, numpy.number | numpy.bool_)
    if type(value) is numpy.memmap:  # to look at a large one would read its file
        is_known = value.flags.writeable and value.nbytes <= LARGEST
    return is_known and not value.dtype.hasobject


def _equal(one: Any, other: Any) -> bool:
    kind = type(one)
    try:  # not number by number, as tables do
        is_table = hasattr(kind, "__array_priority__")
        return kind is type(other) and not is_table and bool(one == other)
    except Exception:
        return False

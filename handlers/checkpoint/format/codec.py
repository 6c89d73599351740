"""From nested values to JSON and tensors, and back, without pickle."""

from __future__ import annotations

import base64
import math
import os
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....engine.state import FACTORIES, Named
from ...common import KINDS, content
from ...files import DEEPEST, LARGEST_TEXT, LONGEST, regular, tree_of
from .errors import reading
from .quantized import flattened, is_quantized, unflattened
from .tensors import DTYPES

if TYPE_CHECKING:
    from torch import Tensor

IS_TAG = methodcaller("startswith", "!")
SEQUENCES: dict[type, str] = {tuple: "!tuple", set: "!set", frozenset: "!frozenset"}
MAPPINGS: dict[type, str] = {dict: "!dict", OrderedDict: "!ordered", Counter: "!counter"}
BEYOND = 10**LONGEST
TREE = "state.json"
TENSOR_TAGS = frozenset({"!tensor", "!ndarray", "!scalar"})
OF_COMPLEX = (
    "Keep it as torch.complex64, or as float64, by torch.view_as_real(...), and make it complex "
    "where it is used, by torch.view_as_complex(...)"
)
OF_MEMORIES = (
    "Remember what is made of these, such as tuple(...) of a named tuple or dict(...) of a table, "
    "and give the state_dict() of an object instead of the object"
)
COPIES, FEW = 4, 2**26
"""The bytes that media may copy: COPIES times the bytes of their tensors, and FEW more."""
PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
"""A surrogate pair in a text, which JSON would read back as one character."""


def rank_file(rank: int) -> str:
    """The name, without its ending, of a rank's own files."""
    return f"rank-{rank:05d}"


class Encoder:
    """Turns values into JSON, and collects their tensors by name.

    A value that JSON knows stays as it is. Any other value becomes an object with one key, a tag
    that begins with `!`; a tensor becomes its name in `tensors`. Only the exact types named in
    this file are taken, so a file cannot make a value of any other type.

    >>> import torch
    >>> encoder = Encoder()
    >>> encoder.encode({"lr": 0.1, "betas": (0.9, math.inf), "mean": torch.zeros(2)}, "adam")
    {'lr': 0.1, 'betas': {'!tuple': [0.9, {'!float': 'inf'}]}, 'mean': {'!tensor': 'adam.mean'}}
    >>> encoder.tensors
    {'adam.mean': tensor([0., 0.])}
    """

    def __init__(self, owner: str = "", *, once: bool = False, of_rank: bool = False) -> None:
        """Encode nothing yet; with `once`, a tensor that is in a value twice is saved once.

        It is restored as one tensor, so that a change in one place is a change in both. With
        `of_rank`, values are those of one rank, and distributed tensors are in `shared`.
        """
        self.owner: str = owner
        self._of_rank = of_rank
        self.tensors: dict[str, Tensor] = {}
        self.shared: dict[str, Tensor] = {}
        """Distributed tensors, under names that are the same on all ranks."""
        self._once: dict[Any, str] | None = {} if once else None
        self._root = ""
        self._bytes = self._copied = 0
        """The bytes of a value's tensors, and the bytes that its media copy when it is read."""

    def encode(self, value: Any, path: str = "", advice: str = OF_MEMORIES) -> Any:
        """The value as JSON; `path` is its place, which names its tensors; `advice` ends an error.

        Raises:
            TypeError: The value, or a value inside it, cannot be saved.
        """
        if self._once is not None:
            self._once = {}
        self._root, self._bytes, self._copied, self._advice = path, 0, 0, advice
        return self._values({path: value}.items(), "", DEEPEST + 1)[0]

    def _values(self, named: Iterable[tuple[Any, Any]], path: str, depth: int) -> list[Any]:
        """The values as JSON, each of which has its place below a path by its name."""
        place, made = f"{path}." if path else "", list[Any]()
        for name, value in named:
            kind = type(value)
            # Most values are as JSON has them; a call for each of these would take longest.
            is_plain = (
                value is None
                or kind is bool
                or (kind is int and -BEYOND < value < BEYOND)
                or (kind is float and math.isfinite(value))
                or (kind is str and value.isascii())
            )
            made.append(value if is_plain else self._encode(value, f"{place}{name}", depth - 1))
        return made

    def _encode(self, value: Any, path: str, depth: int) -> Any:
        """A value that JSON does not have as it is."""
        kind = type(value)
        if kind is int:
            raise self._refuse(path, f"an integer of more than {LONGEST} digits")
        if kind is str:
            return self._text(value, path)
        if kind is float:
            return {"!float": repr(value)}
        if kind is bytes:
            return {"!bytes": base64.b64encode(value).decode("ascii")}
        if not depth:
            raise self._refuse(f"{path[:80]}...", "a value that contains itself, or nests too deep")
        if kind is list:
            return self._values(enumerate(value), path, depth)
        if kind in SEQUENCES:
            if kind is not tuple:
                self._refuse_lost(value, path)
            return {SEQUENCES[kind]: self._values(enumerate(value), path, depth)}
        if kind in MAPPINGS:
            return self._mapping(value, path, depth)
        if kind is deque:
            return {"!deque": [value.maxlen, self._values(enumerate(value), path, depth)]}
        if kind is defaultdict:
            made_by = getattr(value.default_factory, "__name__", "")
            if FACTORIES.get(made_by, self) is not value.default_factory:
                raise self._refuse(path, f"a defaultdict that makes values by {made_by or None}")
            return {"!default": [made_by, self._mapping(dict(value), path, depth)]}
        if kind is Named:
            return {"!named": [value.name, value.is_id]}
        if KINDS.get(kind.__name__) is kind:
            fields = {"kind": kind.__name__, **content(value)}
            made = {"!media": self._mapping(fields, path, depth)}
            self._copied += sum(getattr(each, "nbytes", 0) for each in fields.values())
            if self._copied > COPIES * self._bytes + FEW:
                raise self._refuse(path, "one of many media of the same tensors")
            return made
        return self._array(value, path)

    def _text(self, value: str, path: str) -> str:
        if not PAIR.search(value):
            return value
        raise self._refuse(path, f"the text {value!r}, with halves of a character side by side")

    def _refuse_lost(self, keys: Iterable[Any], path: str) -> None:
        for key in keys:
            if not _is_found(key):
                found = (
                    f"a {type(key).__name__}, as a key or an element, that equals no copy of itself"
                )
                raise self._refuse(_join(path, "<key>"), found)

    def _mapping(self, value: Mapping[Any, Any], path: str, depth: int) -> Any:
        if type(value) is dict and {*map(type, value)} <= {str} and not any(map(IS_TAG, value)):
            keys: Any = value
            if not all(map(str.isascii, value)):
                keys = [self._text(key, path) for key in value]
            return dict(zip(keys, self._values(value.items(), path, depth), strict=True))
        self._refuse_lost(value, path)
        items = (self._values([("<key>", k), (k, each)], path, depth) for k, each in value.items())
        return {MAPPINGS[type(value)]: [*items]}

    def _array(self, value: Any, path: str) -> Any:
        torch: Any = sys.modules.get("torch")  # without torch, the value is no tensor
        numpy: Any = sys.modules.get("numpy")
        distributed: Any = sys.modules.get("torch.distributed.tensor")
        if distributed and isinstance(value, distributed.DTensor):
            if value.device_mesh.size() > 1:
                return {"!tensor": self._put_shards(value.detach(), path)}
            value = value.detach().to_local()
        if torch and type(value) in (torch.Tensor, torch.nn.Parameter):
            tag, tensor = "!tensor", value
        elif torch and isinstance(value, torch.Tensor) and not value.ndim and _has_storage(value):
            # A number is one in any class, such as a loss of monai's tensors.
            tag, tensor = "!tensor", value.as_subclass(torch.Tensor)
        elif torch and numpy and type(value) is numpy.ndarray:
            tag, tensor = "!ndarray", self._from_numpy(numpy.array(value), path)
        elif torch and numpy and isinstance(value, numpy.generic):
            tag, tensor = "!scalar", self._from_numpy(numpy.array(value), path)
        elif is_quantized(value):
            inner, rest = flattened(value)
            tensors = {name: self._array(each, f"{path}.{name}") for name, each in inner.items()}
            return {"!quantized": [type(value).__name__, tensors, rest]}
        else:
            raise self._refuse(path, f"a {type(value).__module__}.{type(value).__qualname__}")
        order = _order(tensor) if self._once is not None else []
        if not order:
            return {tag: self._put(tensor, path)}
        # Another layout in memory would add up sums in another order.
        places = [order.index(place) for place in range(len(order))]
        return {"!permuted": [{tag: self._put(tensor.permute(order), path)}, places]}

    def _from_numpy(self, array: Any, path: str) -> Tensor:
        try:
            tensor: Tensor = sys.modules["torch"].from_numpy(array)
        except (TypeError, ValueError):  # ValueError: another byte order
            raise self._refuse(path, f"an array of {array.dtype!r}") from None
        if tensor.numpy().dtype.type is not array.dtype.type:  # such as a longlong
            raise self._refuse(path, f"an array of {array.dtype!r}")
        return tensor

    def _put_shards(self, tensor: Any, path: str) -> str:
        local = tensor.to_local()
        if is_quantized(local):
            raise TypeError(
                f"{_join(self.owner, path)} is an {type(local).__name__} of torchao on shards, "
                "which a checkpoint holds on one process and under DDP only; with shards, take an "
                "optimizer of torch.optim, such as AdamW"
            )
        if str(local.dtype) not in DTYPES or any(each.is_partial() for each in tensor.placements):
            raise self._refuse(
                path, f"a tensor of {local.dtype}, distributed as {tensor.placements}"
            )
        form = (tensor.device_mesh, tensor.placements, tensor.shape, tensor.dtype)
        # An empty shard has no address; its rank has to use the same names as the other ranks.
        shard = (*form, local.device, local.untyped_storage()._cdata, local.storage_offset())
        if self._once is not None and shard in self._once:
            return self._once[shard]
        if self._of_rank:
            name = f"run{path[len(self._root) :]}"
            self.shared[name] = tensor
        else:
            name = self._name(tensor, path)
        if self._once is not None:
            self._once[shard] = name
        return name

    def _put(self, tensor: Tensor, path: str) -> str:
        dense = str(tensor.layout) == "torch.strided" and not tensor.is_meta
        if not dense or str(tensor.dtype) not in DTYPES:
            raise self._refuse(
                path, f"a tensor of {tensor.dtype}, {tensor.layout}, {tensor.device}"
            )
        if self._once is None or not tensor.numel():
            return self._name(tensor, path)
        form = (tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
        view = (tensor.device, tensor.data_ptr(), *form)
        if view not in self._once:
            self._once[view] = self._name(tensor, path)
        return self._once[view]

    def _name(self, tensor: Tensor, path: str) -> str:
        # Safetensors reserves one name, and refuses lone surrogates.
        plain = path.encode("utf-8", "backslashreplace").decode()
        name, number = plain, 2
        while name in self.tensors or name == "__metadata__":
            name, number = f"{plain}~{number}", number + 1
        self.tensors[name] = tensor.detach()
        self._bytes += tensor.nbytes
        return name

    def _refuse(self, path: str, found: str) -> TypeError:
        return TypeError(
            f"{_join(self.owner, path)} is {found}, which a checkpoint cannot hold; it takes None, "
            "bool, int, float, str, bytes, list, tuple, set, dict, deque, and dense tensors and "
            f"arrays of numbers. {OF_COMPLEX if 'complex128' in found else self._advice}"
        )


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _has_storage(tensor: Any) -> bool:
    """False for a tensor whose class computes by itself, such as one around other tensors."""
    own: Any = type(tensor)
    return own.__torch_dispatch__ is sys.modules["torch"].Tensor.__torch_dispatch__


def _is_found(key: Any) -> bool:
    """True if an equal key finds it: NaN equals nothing, tensors and media only themselves."""
    if isinstance(key, tuple | frozenset):
        return all(map(_is_found, key))
    if type(key) in KINDS.values() or hasattr(key, "layout"):
        return False
    return bool(key == key) if isinstance(key, float) or hasattr(key, "dtype") else True


def _order(tensor: Tensor) -> list[int]:
    """The order of the dimensions in memory, also between gaps; empty if it is the usual one."""
    if str(tensor.layout) != "torch.strided" or tensor.is_contiguous():
        return []
    order = sorted(range(tensor.ndim), key=lambda place: -tensor.stride()[place])
    return [] if order == sorted(order) or 0 in tensor.stride() else order


def decode(encoded: Any, tensors: Mapping[str, Any]) -> Any:
    """The value that `Encoder.encode` was given.

    Args:
        encoded: The value as JSON.
        tensors: By name; those with a method `read` stay in their files until they are met here.

    Raises:
        ValueError: `Encoder` cannot have written this, or a tensor is missing.
    """
    return _decode(encoded, LookedUp(tensors))


class LookedUp(dict[str, "Tensor"]):
    """The tensors looked up so far: the same name always gives the same tensor."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        super().__init__()
        self._tensors = tensors
        self._copied = 0

    def count_copy(self, size: int) -> None:
        """Count the bytes that a medium has copied of its tensors."""
        self._copied += size
        if self._copied > COPIES * sum(each.nbytes for each in self.values()) + FEW:
            raise ValueError("has many media of the same tensors, and each copies them")

    def __missing__(self, name: str) -> Tensor:
        found = self._tensors[name]
        tensor: Tensor = found.read() if hasattr(found, "read") else found
        self[name] = tensor
        return tensor


def _decode(encoded: Any, tensors: LookedUp) -> Any:
    if isinstance(encoded, list):
        return _decoded(encoded, tensors)
    if not isinstance(encoded, dict):
        return encoded
    if len(encoded) == 1:
        ((tag, content),) = encoded.items()
        if tag in DECODERS:
            try:
                return DECODERS[tag](content, tensors)
            except (AttributeError, KeyError, OverflowError, TypeError, RuntimeError) as error:
                said = f"{type(error).__name__}: {error}"
                raise ValueError(f"has an invalid {tag} ({said})") from error
    if any(map(IS_TAG, encoded)):
        raise ValueError(f"has unknown tags: {sorted(encoded)}")
    return dict(zip(encoded, _decoded(encoded.values(), tensors), strict=True))


def _decoded(values: Iterable[Any], tensors: LookedUp) -> list[Any]:
    """Several values; those that nothing is inside of are as they are, without a call for each."""
    made = list[Any]()
    for each in values:
        made.append(_decode(each, tensors) if isinstance(each, dict | list) else each)
    return made


def references(encoded: Any) -> Iterator[str]:
    """The names of the tensors in an encoded value.

    >>> list(references({"betas": {"!tuple": [1, {"!tensor": "b"}]}, "mean": {"!tensor": "m"}}))
    ['m', 'b']
    """
    waiting = [encoded]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict) and len(value) == 1 and not TENSOR_TAGS.isdisjoint(value):
            yield from value.values()
        elif isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value


def tree_at(directory: Path, name: str) -> Any:
    """The values of one JSON file of a checkpoint."""
    with reading(directory, name), regular(directory / name) as file:
        size = os.fstat(file.fileno()).st_size  # read() allocates as many bytes as it is given
        return tree_of(file.read(min(size, LARGEST_TEXT) + 1))


def tree_in(directory: Path) -> Any:
    """The tree of plain values of a checkpoint, in which each tensor has one owner.

    No run writes a tensor with two owners, and each of them would copy it.
    """
    tree, owners = tree_at(directory, TREE), dict[tuple[str, str], str]()
    with reading(directory, TREE):
        for owner, each in tree.get("objects", {}).items():
            for name in references(each["content"]):
                if owners.setdefault((each["file"], name), owner) != owner:
                    raise ValueError(f"names the tensor {name!r} twice, for two owners")
    return tree


def _permuted(given: Any, tensors: LookedUp) -> Any:
    inner, places = _list(given)
    value = _decode(inner, tensors)
    return value.transpose(places) if hasattr(value, "tobytes") else value.permute(places)


def _quantized(given: Any, tensors: LookedUp) -> Any:
    name, inner, rest = _list(given)
    return unflattened(name, _decode(inner, tensors), rest)


def _sequence(kind: Callable[[Any], Any], items: Any, tensors: LookedUp) -> Any:
    return kind(_decoded(_list(items), tensors))


def _mapping(kind: Callable[[Any], Any], items: Any, tensors: LookedUp) -> Any:
    return kind(dict(_decoded(_list(each), tensors) for each in _list(items)))


def _deque(given: Any, tensors: LookedUp) -> Any:
    length, items = _list(given)
    return deque(_decoded(_list(items), tensors), length)


def _default(given: Any, tensors: LookedUp) -> Any:
    name, items = _list(given)
    return defaultdict(FACTORIES[name], _decode(items, tensors))


def _named(given: Any, _: LookedUp) -> Any:
    name, is_id = _list(given)
    return Named(f"{name}", is_id=is_id is True)


def _medium(given: dict[str, Any], tensors: LookedUp) -> Any:
    fields = _decode(given, tensors)
    medium = KINDS[fields.pop("kind")](**fields)
    tensors.count_copy(sum(getattr(each, "nbytes", 0) for each in content(medium).values()))
    return medium


def _list(items: Any) -> list[Any]:
    if not isinstance(items, list):
        raise TypeError(f"{type(items).__name__} where a list should be")
    return items


DECODERS: dict[str, Callable[[Any, LookedUp], Any]] = {
    "!float": lambda text, _: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text],
    "!bytes": lambda text, _: base64.b64decode(text, validate=True),
    "!tensor": lambda name, tensors: tensors[name],
    "!ndarray": lambda name, tensors: tensors[name].numpy(),
    "!media": _medium,
    "!deque": _deque,
    "!default": _default,
    "!named": _named,
    "!permuted": _permuted,
    "!quantized": _quantized,
    "!scalar": lambda name, tensors: tensors[name].reshape(()).numpy()[()],
    **{tag: partial(_sequence, kind) for kind, tag in SEQUENCES.items()},
    **{tag: partial(_mapping, kind) for kind, tag in MAPPINGS.items()},
}

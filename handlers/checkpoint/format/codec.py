"""Nested values as JSON and tensors, without pickle."""

from __future__ import annotations

import base64
import math
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...common import KINDS, content
from ...files import Tables
from .tensors import DTYPES

if TYPE_CHECKING:
    from torch import Tensor

SEQUENCES: dict[type, str] = {tuple: "!tuple", set: "!set", frozenset: "!frozenset"}
TENSOR_TAGS = frozenset({"!tensor", "!ndarray", "!scalar"})
MAPPINGS: dict[type, str] = {dict: "!dict", OrderedDict: "!ordered", Counter: "!counter"}


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

    def __init__(self, owner: str = "") -> None:
        self.owner = owner
        self.tensors: dict[str, Tensor] = {}

    def encode(self, value: Any, path: str = "") -> Any:
        """The value as JSON; `path` is its place, which names its tensors.

        Raises:
            TypeError: The value, or a value inside it, cannot be saved.
        """
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"!float": repr(value)}
        if kind is bytes:
            return {"!bytes": base64.b64encode(value).decode("ascii")}
        if kind is list:
            return self._each(value, path)
        if kind in SEQUENCES:
            return {SEQUENCES[kind]: self._each(value, path)}
        if kind in MAPPINGS:
            return self._mapping(value, path)
        if KINDS.get(kind.__name__) is kind:
            return {"!media": self._mapping({"kind": kind.__name__, **content(value)}, path)}
        return self._array(value, path)

    def _each(self, values: Any, path: str) -> list[Any]:
        return [self.encode(value, _join(path, index)) for index, value in enumerate(values)]

    def _mapping(self, value: Mapping[Any, Any], path: str) -> Any:
        if type(value) is dict and is_untagged(value):
            return {key: self.encode(item, _join(path, key)) for key, item in value.items()}
        items = [
            [self.encode(key, _join(path, "<key>")), self.encode(item, _join(path, key))]
            for key, item in value.items()
        ]
        return {MAPPINGS[type(value)]: items}

    def _array(self, value: Any, path: str) -> Any:
        torch: Any = sys.modules.get("torch")  # not loaded: the value is no tensor
        if torch and type(value) in (torch.Tensor, torch.nn.Parameter):
            return {"!tensor": self._put(value, path)}
        numpy: Any = sys.modules.get("numpy")
        if torch and numpy and (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
            array = numpy.array(value, order="C")
            tag = "!ndarray" if type(value) is numpy.ndarray else "!scalar"
            try:
                return {tag: self._put(torch.from_numpy(array), path)}
            except TypeError:
                raise self._refuse(path, f"an array of {array.dtype}") from None
        raise self._refuse(path, f"a {type(value).__module__}.{type(value).__qualname__}")

    def _put(self, tensor: Tensor, path: str) -> str:
        dense = str(tensor.layout) == "torch.strided" and not tensor.is_meta
        if not dense or str(tensor.dtype) not in DTYPES:
            raise self._refuse(
                path, f"a tensor of {tensor.dtype}, {tensor.layout}, {tensor.device}"
            )
        # Safetensors reserves one name, and takes no single surrogates.
        plain = path.encode("utf-8", "backslashreplace").decode()
        name, number = plain, 2
        while name in self.tensors or name == "__metadata__":
            name, number = f"{plain}~{number}", number + 1
        self.tensors[name] = tensor.detach()
        return name

    def _refuse(self, path: str, found: str) -> TypeError:
        return TypeError(
            f"{_join(self.owner, path)} is {found}, which a checkpoint cannot hold; it takes None, "
            "bool, int, float, str, bytes, list, tuple, set, dict, and dense tensors and arrays of "
            "numbers. Give the state_dict() of an object instead of the object"
        )


def is_untagged(value: Any) -> bool:
    """True for a dict that is saved as a JSON object: all keys are text, and none is a tag."""
    return isinstance(value, dict) and all(
        type(key) is str and not key.startswith("!") for key in value
    )


def decode(encoded: Any, tensors: Mapping[str, Tensor], tables: Tables | None = None) -> Any:
    """The value that `Encoder.encode` was given; `tables` is shared by all values of one file.

    Raises:
        ValueError: `Encoder` cannot have written this, or a tensor is missing.
    """
    tables = tables or Tables()
    if isinstance(encoded, list):
        return [decode(item, tensors, tables) for item in encoded]
    if not isinstance(encoded, dict):
        return encoded
    if len(encoded) == 1:
        ((tag, content),) = encoded.items()
        if tag in DECODERS:
            try:
                return DECODERS[tag](content, tensors, tables)
            except (AttributeError, KeyError, TypeError, RuntimeError) as error:
                said = f"{type(error).__name__}: {error}"
                raise ValueError(f"has an invalid {tag} ({said})") from error
    if any(key.startswith("!") for key in encoded):
        raise ValueError(f"has unknown tags: {sorted(encoded)}")
    return {key: decode(item, tensors, tables) for key, item in encoded.items()}


def references(encoded: Any) -> Iterator[str]:
    """The names of the tensors in an encoded value.

    >>> list(references({"betas": {"!tuple": [1, {"!tensor": "b"}]}, "mean": {"!tensor": "m"}}))
    ['m', 'b']
    """
    left = [encoded]
    while left:
        value = left.pop()
        if isinstance(value, dict) and len(value) == 1 and not TENSOR_TAGS.isdisjoint(value):
            yield from value.values()
        elif isinstance(value, dict | list):
            inner = value.values() if isinstance(value, dict) else value
            left += [each for each in inner if isinstance(each, dict | list)]


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _sequence(kind: Callable[[Any], Any]) -> Decoder:
    def made(items: Any, tensors: Mapping[str, Tensor], tables: Tables) -> Any:
        decoded = (decode(item, tensors, tables) for item in _list(items))
        if kind is tuple:
            return tuple(decoded)
        values = set[Any]()
        tables.fill(values, decoded)
        return kind(values)

    return made


def _mapping(kind: Callable[[Any], Any]) -> Decoder:
    def made(items: Any, tensors: Mapping[str, Tensor], tables: Tables) -> Any:
        values = dict[Any, Any]()
        pairs = map(_list, _list(items))
        tables.fill(
            values,
            ((decode(key, tensors, tables), decode(item, tensors, tables)) for key, item in pairs),
        )
        return kind(values)

    return made


def _medium(given: dict[str, Any], tensors: Mapping[str, Tensor], tables: Tables) -> Any:
    held = decode(given, tensors, tables)
    return KINDS[held.pop("kind")](**held)


def _list(items: Any) -> list[Any]:
    if not isinstance(items, list):
        raise TypeError(f"{type(items).__name__} where a list should be")
    return items


Decoder = Callable[[Any, Mapping[str, "Tensor"], Tables], Any]
DECODERS: dict[str, Decoder] = {
    "!float": lambda text, *_: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text],
    "!bytes": lambda text, *_: base64.b64decode(text, validate=True),
    "!tensor": lambda name, tensors, _: tensors[name],
    "!ndarray": lambda name, tensors, _: tensors[name].numpy(),
    "!media": _medium,
    "!scalar": lambda name, tensors, _: tensors[name].reshape(()).numpy()[()],
    **{tag: _sequence(kind) for kind, tag in SEQUENCES.items()},
    **{tag: _mapping(kind) for kind, tag in MAPPINGS.items()},
}

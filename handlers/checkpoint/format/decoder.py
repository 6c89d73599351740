"""From JSON and tensors back to nested values: only of the types that `Encoder` takes."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...common import KINDS, content
from .encoder import COPIES, FEW, MAPPINGS, SEQUENCES

if TYPE_CHECKING:
    from torch import Tensor

TENSOR_TAGS = frozenset({"!tensor", "!ndarray", "!scalar"})


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

    def note_copy(self, size: int) -> None:
        """Count the bytes that a medium has copied of its tensors.

        Raises:
            ValueError: Media copy the same tensors many times.
        """
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
        return [_decode(item, tensors) for item in encoded]
    if not isinstance(encoded, dict):
        return encoded
    if len(encoded) == 1:
        ((tag, content),) = encoded.items()
        if tag in DECODERS:
            try:
                return DECODERS[tag](content, tensors)
            except (AttributeError, KeyError, TypeError, RuntimeError) as error:
                said = f"{type(error).__name__}: {error}"
                raise ValueError(f"has an invalid {tag} ({said})") from error
    if any(key.startswith("!") for key in encoded):
        raise ValueError(f"has unknown tags: {sorted(encoded)}")
    return {key: _decode(item, tensors) for key, item in encoded.items()}


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


def _permuted(given: Any, tensors: LookedUp) -> Any:
    inner, places = _list(given)
    value = _decode(inner, tensors)
    return value.transpose(places) if hasattr(value, "tobytes") else value.permute(places)


def _sequence(kind: Callable[[Any], Any]) -> Decoder:
    def made(items: Any, tensors: LookedUp) -> Any:
        return kind(_decode(item, tensors) for item in _list(items))

    return made


def _mapping(kind: Callable[[Any], Any]) -> Decoder:
    def made(items: Any, tensors: LookedUp) -> Any:
        pairs = map(_list, _list(items))
        return kind({_decode(key, tensors): _decode(item, tensors) for key, item in pairs})

    return made


def _medium(given: dict[str, Any], tensors: LookedUp) -> Any:
    held = _decode(given, tensors)
    medium = KINDS[held.pop("kind")](**held)
    tensors.note_copy(sum(getattr(each, "nbytes", 0) for each in content(medium).values()))
    return medium


def _list(items: Any) -> list[Any]:
    if not isinstance(items, list):
        raise TypeError(f"{type(items).__name__} where a list should be")
    return items


Decoder = Callable[[Any, LookedUp], Any]
DECODERS: dict[str, Decoder] = {
    "!float": lambda text, _: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text],
    "!bytes": lambda text, _: base64.b64decode(text, validate=True),
    "!tensor": lambda name, tensors: tensors[name],
    "!ndarray": lambda name, tensors: tensors[name].numpy(),
    "!media": _medium,
    "!permuted": _permuted,
    "!scalar": lambda name, tensors: tensors[name].reshape(()).numpy()[()],
    **{tag: _sequence(kind) for kind, tag in SEQUENCES.items()},
    **{tag: _mapping(kind) for kind, tag in MAPPINGS.items()},
}

"""What differs in two checkpoints: the values and the tensors of the run's objects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...checkpoint import Saved, StoredTensor
from ...checkpoint.directory import encoded_objects

if TYPE_CHECKING:
    from torch import Tensor


def checkpoint_differences(one: Saved, two: Saved) -> Iterator[dict[str, Any]]:
    """What differs in the objects of two checkpoints, two tensors in memory at a time.

    Of each difference the name, such as `model.0.weight`, and what each has, such as
    `float32 [4, 3]`; of tensors of one shape and type also `numbers`, how many differ, and
    `largest` and `relative`, the largest difference as it is and over the largest value.
    """
    first, second = _values(one), _values(two)
    for name in {**first, **second}:
        a, b = (each.get(name) for each in (first, second))
        found = {"name": name, "a": _shown(a), "b": _shown(b)}
        if isinstance(a, StoredTensor) and isinstance(b, StoredTensor) and found["a"] == found["b"]:
            if by := _apart(a.read(), b.read()):
                yield found | by
        elif found["a"] != found["b"]:
            yield found


def _values(saved: Saved) -> dict[str, Any]:
    """The tensors, and the plain values as JSON, by the places in the run's objects."""
    found = dict[str, Any]()
    for name, (content, tensors) in encoded_objects(saved).items():
        for place, value in leaves_of(content, name):
            tensor = value.get("!tensor") if isinstance(value, dict) else None
            found[place] = tensors[tensor] if tensor in tensors else json.dumps(value)
    return found


def unequal(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """The names under which two have other values, and these; None for a name that one lacks."""
    for name in {**a, **b}:
        if a.get(name) != b.get(name):
            yield name, a.get(name), b.get(name)


def leaves_of(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The plain values of a tree as files hold it, by their places; a list of numbers is one."""
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("!"):
        tag, inner = next(iter(value.items()))
        if tag == "!tensor":
            yield name, value
            return
        is_pairs = tag == "!dict" and isinstance(inner, list)
        value = {str(key): each for key, each in inner} if is_pairs else inner
    inside: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        inside = enumerate(value)
    else:
        yield name, value
        return
    for key, each in inside:
        yield from leaves_of(each, f"{name}.{key}")


def _shown(value: Any) -> str | None:
    if isinstance(value, StoredTensor):
        return f"{value.info.dtype} {list(value.shape)}"
    return value if value is None else str(value)


def _apart(a: Tensor, b: Tensor) -> dict[str, Any] | None:
    """How two tensors of one shape and type differ; None if they have the same bits."""
    import torch

    if torch.equal(bits(a), bits(b)):
        return None
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    wide = torch.float64 if a.is_floating_point() else torch.int64
    a, b = a.to(wide), b.to(wide)
    unequal = ~((a == b) | (a.isnan() & b.isnan()))
    apart = (a - b)[unequal].abs()
    largest = float(apart.max()) if len(apart) else 0.0
    values = torch.cat([x[x.isfinite()].abs() for x in (a, b)])
    scale = float(values.max()) if len(values) else 0.0
    relative = largest / scale if scale else largest
    return {"numbers": int(unequal.sum()), "largest": largest, "relative": relative}


def bits(tensor: Tensor) -> Tensor:
    """The bytes of a tensor, in which -0 is not 0, and NaN is itself."""
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)

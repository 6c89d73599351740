"""Tensors inside nested tuples, lists, dicts and dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from torch import Tensor
from torch.utils._pytree import tree_map

Nested = TypeVar("Nested")


def is_tensor(nested: Any) -> bool:
    """True for a tensor."""
    return isinstance(nested, Tensor)


def map_tensors(
    nested: Nested, change: Callable[[Any], Any], *, is_leaf: Callable[[Any], bool] = is_tensor
) -> Nested:
    """The same structure with all tensors changed; other values stay as they are.

    Args:
        nested: Of any depth; a dataclass is copied, also a frozen one, and a mapping that torch
            does not know becomes a dict.
        change: Makes the new value of a tensor.
        is_leaf: What to hand to `change`, where that is not tensors alone.

    >>> import torch
    >>> map_tensors({"a": [torch.ones(2), "b"]}, len)
    {'a': [2, 'b']}
    """

    def visit(leaf: Any) -> Any:
        if is_leaf(leaf):
            return change(leaf)
        if is_dataclass(leaf) and not isinstance(leaf, type):
            twin = copy(leaf)
            for item in fields(leaf):  # setattr fails on a frozen one
                value = map_tensors(getattr(leaf, item.name), change, is_leaf=is_leaf)
                object.__setattr__(twin, item.name, value)
            return twin
        if isinstance(leaf, Mapping):  # of a kind that torch does not know
            return {name: map_tensors(each, change, is_leaf=is_leaf) for name, each in leaf.items()}
        if isinstance(leaf, list | tuple):  # of a class that torch does not know
            values = [map_tensors(each, change, is_leaf=is_leaf) for each in leaf]
            is_same = all(a is b for a, b in zip(values, leaf, strict=True))
            return leaf if is_same else type(leaf)(values)
        return leaf

    return tree_map(visit, nested, is_leaf=is_leaf)  # type: ignore[no-any-return]


def tensors_of(nested: Any) -> list[Tensor]:
    """All tensors, in the order in which `map_tensors` changes them."""
    found: list[Tensor] = []
    map_tensors(nested, found.append)
    return found

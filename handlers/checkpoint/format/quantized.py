"""The states in 8 or 4 bits that torchao's optimizers keep: tensors that are made of plain ones.

They are taken apart as torch itself does, by `__tensor_flatten__`, and only the classes named here
are put together again, so a file cannot make a value of any other class.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from .tensors import DTYPES

QUANTIZED = {
    "OptimState8bit": "torchao.optim.subclass_8bit",
    "OptimState4bit": "torchao.optim.subclass_4bit",
    "OptimStateFp8": "torchao.optim.subclass_fp8",
}
"""The classes by name, and the module of each."""


def is_quantized(value: object) -> bool:
    """True for a tensor of one of these classes, without an import of torchao."""
    kind = type(value)
    return QUANTIZED.get(kind.__name__) == kind.__module__


def flattened(value: Any) -> tuple[dict[str, Any], list[Any]]:
    """The tensors of which a value is made, by name, and the rest of it as JSON."""
    names, rest = value.__tensor_flatten__()
    return {name: getattr(value, name) for name in names}, [_as_json(each) for each in rest]


def unflattened(name: str, tensors: Mapping[str, Any], rest: list[Any]) -> Any:
    """The value that `flattened` was given.

    Raises:
        ValueError: torchao is not installed, or this is no such value.
    """
    try:
        kind = getattr(import_module(QUANTIZED[name]), name)
    except ImportError as error:
        raise ValueError(
            f"holds an {name} of torchao, which cannot be imported ({error}): pip install torchao"
        ) from error
    try:
        return kind.__tensor_unflatten__(tensors, [_from_json(each) for each in rest])
    except (ArithmeticError, AssertionError) as error:
        raise ValueError(f"has an invalid {name}") from error


def _as_json(given: Any) -> Any:
    """A bool as it is, a type of numbers as text, a shape as a list."""
    if isinstance(given, tuple):
        return list(given)
    return given if isinstance(given, bool) else str(given)


def _from_json(given: Any) -> Any:
    import torch

    if isinstance(given, list):
        return torch.Size(given)
    if given in DTYPES:
        return getattr(torch, given.removeprefix("torch."))
    if isinstance(given, bool):
        return given
    raise TypeError(f"{given!r} is no type, shape or bool")

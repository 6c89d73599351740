"""A checkpoint as one `.pt` file, for programs that do not know Camshaft.

The only file that calls `torch.save`. It writes only values that `torch.load(...,
weights_only=True)` of torch 2.4 takes, and Camshaft never reads such a file.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from typing import Any, BinaryIO

import torch

from ..format import Manifest

NUMBERS = ("iteration", "step", "epoch", "metrics")
LARGEST = 2**2000
"""Python pickles larger integers with an opcode that `weights_only=True` refuses."""


def pt_content(objects: dict[str, Any], manifest: Manifest, object: str | None) -> Any:
    """The content of a file with the states of a checkpoint's objects, or of one.

    See `Saved.export` for the content and the errors.
    """
    content = {name: portable(state, name) for name, state in objects.items()}
    if object is not None:
        return content[object]
    if taken := sorted(content.keys() & set(NUMBERS)):
        raise ValueError(
            f"an object is called {taken[0]!r}, as a number in the file is; "
            f"export it alone, with object={taken[0]!r}"
        )
    return content | {name: getattr(manifest, name) for name in NUMBERS}


def write_pt(content: Any, file: BinaryIO) -> None:
    """Write the content to an open file."""
    torch.save(content, file)


def portable(value: Any, path: str) -> Any:
    """The value with NumPy's arrays as tensors and its numbers as Python's.

    >>> import numpy
    >>> portable({"mean": numpy.zeros(2), "count": numpy.int64(3)}, "normaliser")
    {'mean': tensor([0., 0.], dtype=torch.float64), 'count': 3}
    """
    kind = type(value)
    if value is None or kind in (bool, float, str, torch.Tensor):
        return value
    if kind is int and abs(value) < LARGEST:
        return value
    if kind in (list, tuple):
        return kind(portable(item, f"{path}.{index}") for index, item in enumerate(value))
    if kind in (dict, OrderedDict, Counter):
        keys = [portable(key, f"{path}.<key>") for key in value]
        items = [portable(item, f"{path}.{key}") for key, item in value.items()]
        return kind(dict(zip(keys, items, strict=True)))
    numpy: Any = sys.modules.get("numpy")
    if numpy and kind is numpy.ndarray:
        return torch.from_numpy(value)
    if numpy and isinstance(value, numpy.generic):
        return portable(value.item(), path)
    found = "a very large integer" if kind is int else f"a {kind.__module__}.{kind.__qualname__}"
    raise TypeError(
        f"{path} is {found}, which torch.load(weights_only=True) does not take; the objects "
        "without such a thing can be exported one by one, with object="
    )

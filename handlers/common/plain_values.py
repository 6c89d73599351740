"""Values of all kinds as plain values, which JSON can hold."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import math
import os
from collections.abc import Mapping, Sequence, Set
from typing import Any

DEEPEST = 20
LONGEST = 1024
"""The bits of the largest integers that a float can hold, and that all JSON readers take."""


def plain(value: Any, depth: int = 0) -> Any:
    """The same value made of dicts, lists, texts, numbers, truth values and None.

    Objects with names become dicts: mappings (those of OmegaConf with references resolved),
    dataclasses, `argparse.Namespace`, and objects with `model_dump`, such as pydantic's models.
    Numbers that JSON cannot hold become text, such as `"nan"`; any other object becomes its `repr`.

    >>> plain({"size": (8, 8), 1: float("inf"), "where": os.path, "on": True})["size"]
    [8, 8]
    """
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return value if value.bit_length() <= LONGEST else hex(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if depth >= DEEPEST:  # perhaps it contains itself
        return "..."
    if (named := _names(value)) is not None:
        return {str(key): plain(each, depth + 1) for key, each in named.items()}
    if isinstance(value, Sequence | Set) and not isinstance(value, bytes):
        return [plain(each, depth + 1) for each in value]
    return repr(value)


def _names(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return {key: _item(value, key) for key in value}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    if isinstance(value, argparse.Namespace):
        return vars(value)
    dump: Any = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        return None
    dumped: dict[str, Any] = dump()
    return dumped


def _item(mapping: Mapping[Any, Any], key: Any) -> Any:
    """One value; the name of the error if OmegaConf cannot resolve it, such as a missing value."""
    try:
        return mapping[key]
    except Exception as error:
        return f"<{type(error).__name__}>"


def flat_hparams(
    hparams: Mapping[str, Any], prefix: str = ""
) -> dict[str, bool | int | float | str]:
    """Hyper-parameters with nested names joined by `/`; other values than plain ones become text.

    >>> flat_hparams({"lr": 0.1, "model": {"width": 64, "norm": None}, "betas": (0.9, 0.99)})
    {'lr': 0.1, 'model/width': 64, 'model/norm': 'None', 'betas': '(0.9, 0.99)'}
    """
    found: dict[str, bool | int | float | str] = {}
    for key, value in hparams.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat_hparams(value, f"{name}/")
        else:
            found[name] = value if isinstance(value, bool | int | float | str) else str(value)
    return found

"""Hyper-parameters as trackers take them: one level, plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Plain = bool | int | float | str


def flat(hparams: Mapping[str, Any], prefix: str = "") -> dict[str, Plain]:
    """Nested names joined by `/`; what is no number, truth or text becomes text.

    >>> flat({"lr": 0.1, "model": {"width": 64, "norm": None}, "betas": (0.9, 0.99)})
    {'lr': 0.1, 'model/width': 64, 'model/norm': 'None', 'betas': '(0.9, 0.99)'}
    """
    found: dict[str, Plain] = {}
    for key, value in hparams.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}/")
        else:
            found[name] = value if isinstance(value, bool | int | float | str) else str(value)
    return found

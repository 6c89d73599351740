"""What changes in a run, and what does not: by the versions of tensors, or by some numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .. import modules

SAMPLES = 8
"""Numbers of each tensor that are compared: a write by `.data` raises no version."""


@dataclass(frozen=True)
class Weights:
    """The optimizers of an engine, and how often their weights had been written at one moment."""

    optimizers: Mapping[str, Any]
    written: Mapping[str, list[int]]

    @classmethod
    def of(cls, objects: Mapping[str, Any]) -> Weights:
        """Look at the optimizers among the objects; those of sharded weights are left out."""
        written = {name: _written(each) for name, each in objects.items()}
        return cls({name: objects[name] for name in written if written[name]}, written)

    def unchanged(self, output: Any) -> list[str]:
        """The optimizers whose weights nobody has written since, if the output has a graph."""
        parts = output.values() if isinstance(output, Mapping) else output
        parts = parts if isinstance(output, Mapping | list | tuple) else [output]
        if not any(getattr(each, "requires_grad", False) is True for each in parts):
            return []
        return [
            f"objects[{name!r}]"
            for name, each in self.optimizers.items()
            if _written(each) == self.written[name]
        ]


def _written(optimizer: Any) -> list[int]:
    """The version of each trainable weight, which a write raises, and the size of the state."""
    if (torch := sys.modules.get("torch")) is None or not hasattr(optimizer, "param_groups"):
        return []
    held = [each for group in optimizer.param_groups for each in group["params"]]
    if any(type(each) not in (torch.Tensor, torch.nn.Parameter) for each in held):
        return []
    return [*(each._version for each in held if each.requires_grad), len(optimizer.state)]


def sample(tensor: Any) -> Any:
    """The bytes of some numbers of a tensor, on its device; None where it has none yet."""
    with suppress(Exception):  # such as a parameter without a shape, or on the device "meta"
        own = modules.local(tensor).detach().reshape(-1)
        some = own[:: max(1, own.numel() // SAMPLES)]
        return some.clone().view(sys.modules["torch"].uint8)
    return None


def are_equal(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """True if these samples of tensors and plain values are the same, in order."""
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(_is_equal(*each) for each in pairs)


def _is_equal(one: Any, other: Any) -> bool:
    if hasattr(one, "untyped_storage") and hasattr(other, "untyped_storage"):
        return one.device == other.device and bool(sys.modules["torch"].equal(one, other))
    return type(one) is type(other) and (one == other or one != one)  # NaN equals NaN

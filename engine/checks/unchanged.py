"""Losses that a process function returns, and that nothing trains with."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
    """Of each trainable weight how often it was written, and how many the optimizer has stepped."""
    if (torch := sys.modules.get("torch")) is None or not hasattr(optimizer, "param_groups"):
        return []
    held = [each for group in optimizer.param_groups for each in group["params"]]
    if any(type(each) not in (torch.Tensor, torch.nn.Parameter) for each in held):
        return []
    return [*(each._version for each in held if each.requires_grad), len(optimizer.state)]

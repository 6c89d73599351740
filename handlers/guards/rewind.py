"""Copies of what the optimizers of a run train, to go back to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from ...engine.modules import unwrap, weights_of
from ...engine.update import parameters_of


class Rewind:
    """The two latest copies of weights and optimizers, in the host's memory; saved with the run.

    A copy has the optimizers' state and not their options: rates belong to schedules, which go on.
    """

    def __init__(self) -> None:
        self.copies: list[dict[str, Any]] = []

    def copy(self, objects: Mapping[str, Any], step: int) -> None:
        """Make a copy, and keep the copy before it; drop older ones."""
        optimizers, modules = trained(objects)
        copy: dict[str, Any] = {
            "step": step,
            "modules": {
                name: {key: _to_host(each) for key, each in weights_of(module).items()}
                for name, module in modules.items()
            },
            "optimizers": {
                name: tree_map_only(Tensor, _to_host, optimizer.state_dict()["state"])
                for name, optimizer in optimizers.items()
            },
        }
        self.copies = [*self.copies[-1:], copy]

    @torch.no_grad()
    def put_back(self, objects: Mapping[str, Any]) -> int:
        """Put the earlier copy back and drop the later one; return the step of the copy."""
        copy = self.copies[0]
        self.copies = [copy]
        optimizers, modules = trained(objects)
        for name, module in modules.items():
            for key, tensor in weights_of(module).items():
                tensor.data.copy_(copy["modules"][name][key])
        for name, optimizer in optimizers.items():
            # Cloned, because an optimizer takes tensors over and then changes them.
            state = tree_map_only(Tensor, Tensor.clone, copy["optimizers"][name])
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": state, "param_groups": groups})
        return int(copy["step"])

    def state_dict(self) -> dict[str, Any]:
        """The copies."""
        return {"copies": self.copies}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take the copies over."""
        self.copies = list(saved["copies"])


def has_optimizer(objects: Mapping[str, Any]) -> bool:
    """True if an optimizer and a module that it trains are among the objects."""
    return all(trained(objects))


def trained(objects: Mapping[str, Any]) -> tuple[dict[str, Optimizer], dict[str, Module]]:
    """The optimizers among the objects, and the modules with parameters that they hold."""
    optimizers = {name: each for name, each in objects.items() if isinstance(each, Optimizer)}
    held = {id(each) for optimizer in optimizers.values() for each in parameters_of(optimizer)}
    modules = {
        name: unwrap(each)
        for name, each in objects.items()
        if isinstance(each, Module) and any(id(own) in held for own in each.parameters())
    }
    return optimizers, modules


def _to_host(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)

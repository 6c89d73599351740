"""Loads as a distributed tensor what is one in the script, in whatever form it was saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ....engine.modules import box_of, local
from ..directory import StoredTensor
from ..format import TRAIN
from ..weights import weights
from .regions import is_distributed, strides_of


@dataclass(frozen=True, eq=False)
class OwnShard:
    """A saved tensor that the script distributes; only this rank's shard of it is read."""

    saved: StoredTensor | Tensor
    like: Any
    """The distributed tensor of the script that has the same form."""

    def read(self) -> Tensor:
        """A new distributed tensor with the saved values."""
        from torch.distributed.tensor import DTensor

        box, like = box_of(self.like), self.like
        if isinstance(self.saved, Tensor):
            part = self.saved[tuple(slice(first, last) for first, last in box)]
        else:
            part = self.saved.read(box)
        # For an empty shard, fully_shard makes the rows empty too.
        return DTensor.from_local(
            part.reshape(local(like).shape), like.device_mesh, like.placements, run_check=False,
            shape=like.shape, stride=strides_of(like.shape),
        )  # fmt: skip


class Targets:
    """Finds, for a saved tensor, the distributed tensor of the script that has its layout.

    The state of an optimizer is found by the place of its parameter. What handlers remember has the
    layout of the weight of the same name, such as `run.memory.Best.weights.layers.0.weight`; if it
    was saved in pieces, that of any weight of the same shape. A module's own weights are filled as
    they are; see `load_weights`.
    """

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._modules = {name for name, each in objects.items() if isinstance(each, Module)}
        self._named: dict[str, list[Any]] = {}
        self._kept: dict[str, list[Any]] = {}
        for name, each in objects.items():
            if isinstance(each, Module):
                for key, value in weights(each).items():
                    if is_distributed(value):
                        self._named.setdefault(key, []).append(value)
            elif isinstance(each, Optimizer):
                params = [tensor for group in each.param_groups for tensor in group["params"]]
                if any(map(is_distributed, params)):
                    self._kept[name] = params
        self._all = [each for own in self._named.values() for each in own]
        self._all += [e for params in self._kept.values() for e in params if is_distributed(e)]

    def of(
        self, file: str, tensors: Mapping[str, StoredTensor | Tensor]
    ) -> Mapping[str, StoredTensor | OwnShard | Tensor]:
        """The tensors of a file, distributed as those of the script are when they are read."""
        if not self._all or (file in self._modules and file != TRAIN):
            return tensors
        return {name: _shard(each, self._like(name)) for name, each in tensors.items()}

    def of_memory(
        self, tensors: Mapping[str, StoredTensor | Tensor]
    ) -> Mapping[str, StoredTensor | OwnShard | Tensor]:
        """The same for tensors that were saved in pieces, because they were distributed."""
        likes = self._all
        return {name: _shard(e, [*self._like(name), *likes]) for name, e in tensors.items()}

    def _like(self, name: str) -> list[Any]:
        parts = name.split(".")
        for at, part in enumerate(parts[:-1]):
            if part == "state" and (params := self._kept.get(".".join(parts[:at]))):
                index = parts[at + 1]
                found = [params[int(index)]] if index.isdigit() and int(index) < len(params) else []
                return [each for each in found if is_distributed(each)]
        tails = (".".join(parts[at:]) for at in range(len(parts)))
        return next((self._named[tail] for tail in tails if tail in self._named), [])


def _shard(saved: StoredTensor | Tensor, likes: Sequence[Any]) -> StoredTensor | OwnShard | Tensor:
    like = next((each for each in likes if tuple(each.shape) == tuple(saved.shape)), None)
    return saved if like is None else OwnShard(saved, like)

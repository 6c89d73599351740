"""Loads as a distributed tensor what is one in the script, in whatever form it was saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ..directory import TensorSource
from ..format import TRAIN
from ..weights import weights
from .regions import is_distributed, shard_of

Like = Callable[[str], Sequence[Any]]
"""The distributed tensors of the script that a tensor of this name may be like."""


class Resharded(Mapping[str, Tensor]):
    """The tensors of a file; of those that the script distributes, only this rank's shards."""

    def __init__(self, source: TensorSource, like: Like) -> None:
        self._source, self._like = source, like

    def __getitem__(self, name: str) -> Tensor:
        """The tensor; of a distributed one only the shard is read."""
        shape = self._source.info(name).shape
        for each in self._like(name):
            if tuple(each.shape) == shape:
                return shard_of(self._source, name, each)
        return self._source[name]

    def __contains__(self, name: object) -> bool:
        """True if there is a tensor of this name, which is not read."""
        return name in self._source

    def __iter__(self) -> Iterator[str]:
        return iter(self._source)

    def __len__(self) -> int:
        return len(self._source)


class Targets:
    """Finds, for a saved tensor, the distributed tensors of the script that have its layout.

    A weight is found by its name, and the state of an optimizer by the place of its parameter. What
    handlers remember has the layout of the weight of the same name, such as
    `run.memory.Best.weights.layers.0.weight`; if it was saved in pieces, that of any weight of the
    same shape.
    """

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._weights: dict[str, dict[str, Any]] = {}
        self._named: dict[str, list[Any]] = {}
        self._kept: dict[str, list[Any]] = {}
        for name, each in objects.items():
            if isinstance(each, Module):
                own = {k: value for k, value in weights(each).items() if is_distributed(value)}
                self._weights[name] = own
                for key, value in own.items():
                    self._named.setdefault(key, []).append(value)
            elif isinstance(each, Optimizer):
                held = [tensor for group in each.param_groups for tensor in group["params"]]
                if any(map(is_distributed, held)):
                    self._kept[name] = held
        self._all = [each for own in self._weights.values() for each in own.values()]
        self._all += [e for held in self._kept.values() for e in held if is_distributed(e)]

    def of(self, file: str, source: Any) -> Any:
        """The tensors of a file, distributed as those of the script are."""
        if not self._all or not isinstance(source, TensorSource):
            return source
        if file in self._weights and file != TRAIN:
            own = self._weights[file]
            return Resharded(source, lambda name: [own[name]] if name in own else [])
        return Resharded(source, self._like)

    def of_memory(self, source: TensorSource) -> Mapping[str, Tensor]:
        """The same for tensors that were saved in pieces, because they were distributed."""
        if not self._all:
            return source
        return Resharded(source, lambda name: [*self._like(name), *self._all])

    def _like(self, name: str) -> list[Any]:
        parts = name.split(".")
        for at, part in enumerate(parts[:-1]):
            if part == "state" and (held := self._kept.get(".".join(parts[:at]))):
                index = parts[at + 1]
                found = [held[int(index)]] if index.isdigit() and int(index) < len(held) else []
                return [each for each in found if is_distributed(each)]
        tails = (".".join(parts[at:]) for at in range(len(parts)))
        return next((self._named[tail] for tail in tails if tail in self._named), [])

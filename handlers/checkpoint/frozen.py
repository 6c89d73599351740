"""Frozen weights, such as those below an adapter: in a file of their own, or as checksums alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from ...engine import ranks
from ...engine.modules import TWIN, box_of
from .sharding import holds_first_copy, is_sharded
from .weights import named_parameters_of, weights

PIECE = 2**24
AT_ONCE = 2**16
"""Numbers that are added up at once; each takes 24 bytes of memory. It divides `PIECE`."""
"""Numbers of a weight that are added up at once."""
SMALLEST = 2**20
"""The fewest bytes of frozen weights that may get a file of their own."""
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}

Sums = dict[str, dict[str, int]]
"""By object and weight: checksums."""


@dataclass(frozen=True)
class FrozenWeights:
    """The parameters of a run's modules that need no gradient and have not changed.

    The script makes them anew from their source, so a checkpoint may leave them out.
    """

    objects: Mapping[str, Any]
    noted: Sums
    """The parameters as they were before the run started."""

    @classmethod
    def of(cls, objects: Mapping[str, Any]) -> FrozenWeights:
        """Note the parameters as they are now."""
        return cls(objects, {name: checksums(each) for name, each in _modules(objects).items()})

    def left_out(self, saved: dict[str, list[str]]) -> Sums:
        """The weights that a checkpoint may leave out.

        Args:
            saved: By object, the weights that a checkpoint of this run has held: they are never
                left out again. Those of this one are added.
        """
        modules = _modules(self.objects)
        found: Sums = {}
        for name in sorted(modules, key=lambda name: hasattr(modules[name], TWIN)):
            own, noted = modules[name], self.noted.get(name, {})
            frozen = _frozen(own) & weights(own).keys()
            if hasattr(own, TWIN):  # an average needs no gradients, but is not frozen
                names = weights(own).keys()
                like = (n for n in found if weights(modules[n]).keys() == names)
                frozen &= found.get(next(like, ""), {}).keys()
            frozen -= {*saved.get(name, ())}
            now = checksums(own, frozen)
            found[name] = {key: now[key] for key in now if noted.get(key) == now[key]}
            saved[name] = [key for key in weights(own) if key not in found[name]]
        return {name: out for name, out in found.items() if out}


def apart(
    modules: Mapping[str, Module], files: Mapping[str, Mapping[str, Tensor]]
) -> dict[str, set[str]]:
    """By module, the weights that get a file of their own, which later checkpoints can share.

    These are the frozen weights of a module that is trained in part, if they are at least half of
    its bytes and `SMALLEST`. For an average they are the frozen weights of its model.

    Args:
        modules: By name.
        files: By the same names, the tensors that are saved.
    """
    frozen, found = dict[str, set[str]](), dict[str, set[str]]()
    for name in sorted(modules, key=lambda name: hasattr(modules[name], TWIN)):
        own, tensors = modules[name], files[name]
        if hasattr(own, TWIN):
            like = (each for each in frozen if files[each].keys() == tensors.keys())
            frozen[name] = frozen.get(next(like, ""), set())
        elif any(each.requires_grad for each in own.parameters()):
            frozen[name] = _frozen(own) & tensors.keys()
        else:  # a whole module that is frozen has a file of its own
            frozen[name] = set()
        size = sum(tensors[each].nbytes for each in frozen[name])
        if size >= SMALLEST and 2 * size >= sum(each.nbytes for each in tensors.values()):
            found[name] = frozen[name]
    return found


def checksums(module: Module, names: set[str] | None = None) -> dict[str, int]:
    """The checksums of a module's parameters, or of those named, by their plain names."""
    own = {
        key: each
        for key, each in named_parameters_of(module).items()
        if names is None or key in names
    }
    own = {key: each for key, each in own.items() if not is_lazy(each)}
    sums = {key: checksum(each) for key, each in own.items()}
    if shards := [key for key, each in own.items() if is_sharded(each)]:
        # Each rank has the sum over its shards; all ranks ask for the same weights.
        added = ranks.total(torch.stack([sums[key] for key in shards]))
        sums |= dict(zip(shards, added, strict=True))  # type: ignore[arg-type]
    return {key: int(each) for key, each in sums.items()}  # waits when all devices have work


def changed(module: Module, frozen: Mapping[str, int]) -> list[str]:
    """The names of the weights whose checksums differ from these."""
    own = checksums(module, {*frozen})
    return [name for name in frozen if own.get(name) != frozen[name]]


def checksum(tensor: Tensor) -> Tensor:
    """The sum of the bits as integers, each times its place; exact, and on the tensor's device.

    For a sharded tensor, it is the part of the sum that belongs to this rank's shard. Of ranks with
    the same shard, one contributes.
    """
    if is_sharded(tensor):
        return _checksum_of_shard(tensor)
    flat = tensor.detach().contiguous().reshape(-1)
    whole = flat.view(INTEGERS.get(flat.element_size(), torch.int64))
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for first in range(0, len(whole), AT_ONCE):
        piece = whole[first : first + AT_ONCE]
        number = first % PIECE + first // PIECE + 1
        places = torch.arange(number, number + len(piece), device=flat.device)
        total += (piece.long() * places).sum()
    return total


def _checksum_of_shard(tensor: Any) -> Tensor:
    local = tensor.detach().to_local()
    total = torch.zeros((), dtype=torch.int64, device=local.device)
    if not holds_first_copy(tensor) or not local.numel():
        return total
    numbers = [torch.arange(*each, device=local.device) for each in box_of(tensor)]
    step, inner = 1, torch.zeros((), dtype=torch.int64, device=local.device)
    for dim in range(tensor.ndim - 1, 0, -1):  # index inside a row of the first dimension
        shape = [-1] + [1] * (tensor.ndim - 1 - dim)
        inner = inner + numbers[dim].reshape(shape) * step
        step *= tensor.shape[dim]
    bits = INTEGERS.get(local.element_size(), torch.int64)
    rows = zip(local, numbers[0], strict=True) if tensor.ndim else [(local, 0)]
    for row, number in rows:
        places = inner + number * step
        # As in `checksum`: the places in each PIECE begin again, from one more.
        factors = places % PIECE + places // PIECE + 1
        total += (row.contiguous().reshape(-1).view(bits).long() * factors.reshape(-1)).sum()
    return total


def _modules(objects: Mapping[str, Any]) -> dict[str, Module]:
    return {name: each for name, each in objects.items() if isinstance(each, Module)}


def _frozen(module: Module) -> set[str]:
    own = named_parameters_of(module)
    return {name for name, parameter in own.items() if not parameter.requires_grad}

"""A checkpoint's values, decoded for this rank: of what it distributes, only its own shards."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ....engine import ranks
from ....engine.modules import box_of, is_spread, local
from ..directory import Saved, StoredTensor, read_checkpoint, read_part
from ..format import MEMORY, TRAIN, decode, is_untagged, rank_file, reading
from ..weights import weights
from .check import validate_run

logger = logging.getLogger("camshaft")


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
            shape=like.shape, stride=torch.empty(like.shape, device="meta").stride(),
        )  # fmt: skip


Tensors = Mapping[str, StoredTensor | OwnShard | Tensor]
"""By name: tensors that are read when they are decoded or loaded, or that are in memory."""


@dataclass(frozen=True)
class SavedRun:
    """What a checkpoint holds for this rank: the states of the objects, and of the run."""

    objects: Mapping[str, Any]
    run: Mapping[str, Any]
    is_own: bool = True
    """False if `run` is another rank's, because the checkpoint has none of this rank."""
    frozen: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By object: the weights that the checkpoint left out, with their checksums."""

    buffers: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """By object: the buffers of this rank that differ from those of rank 0."""

    @classmethod
    def at(
        cls,
        saved: Saved,
        objects: Mapping[str, Any],
        in_memory: Mapping[str, Mapping[str, Tensor]] | None = None,
    ) -> SavedRun:
        """Read a verified checkpoint; of distributed tensors of the script, only this rank's part.

        Raises:
            BrokenCheckpoint: A file has a wrong format, or no run writes such values.
            ValueError: The checkpoint is an export.
        """
        tree, tensors = read_checkpoint(saved, in_memory)
        targets = Targets(objects)
        own_tensors = {file: targets.of(file, each) for file, each in tensors.items()}
        if not saved.manifest.holds_run:
            raise ValueError("it holds exported weights alone, and no run can resume from them")
        with reading(file="state.json"):
            states, frozen = _objects(tree, own_tensors)
        count = saved.manifest.world_size
        own = _own_part(count)
        name = f"{rank_file(own)}.json"
        part, remembered = read_part(saved, own)
        # One process saves whole what several save in pieces.
        whole = targets.of(name, remembered) if count == 1 else remembered
        memory = targets.of_memory(tensors.get(MEMORY, {}))
        with reading(file=name):
            run, buffers = cls.of_part(part, {**memory, **whole})
        is_own = own == ranks.rank() and count == ranks.world_size()
        return cls(states, run, own == ranks.rank(), frozen, buffers if is_own else {})

    @staticmethod
    def of_part(part: Any, tensors: Tensors) -> tuple[Any, dict[str, dict[str, Tensor]]]:
        """The state of the run in the file of one rank, and its buffers.

        Raises:
            ValueError: No run writes such values.
        """
        run, buffers = (decode(part[each], tensors) for each in ("run", "buffers"))
        validate_run(run)
        if not isinstance(buffers, dict) or odd_buffers(buffers):
            raise ValueError("has buffers that are no tensors by object and name")
        return run, buffers


def objects_at(
    saved: Saved,
    objects: Mapping[str, Any],
    in_memory: Mapping[str, Mapping[str, Tensor]] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of the objects in a checkpoint or export, and the checksums of what it left out.

    Raises:
        BrokenCheckpoint: A file has a wrong format.
    """
    tree, tensors = read_checkpoint(saved, in_memory)
    targets = Targets(objects)
    with reading(file="state.json"):
        return _objects(tree, {file: targets.of(file, each) for file, each in tensors.items()})


def odd_buffers(buffers: dict[Any, Any]) -> bool:
    """True if these are not buffers by object and name."""
    return not all(
        isinstance(own, dict) and all(isinstance(each, Tensor) for each in own.values())
        for own in buffers.values()
    )


def _objects(tree: Any, tensors: Mapping[str, Tensors]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of the objects, and the checksums of the weights that were left out."""
    objects = dict[str, Any]()
    for name, each in tree["objects"].items():
        content, own = each["content"], tensors.get(each["file"], {})
        if each["file"] != TRAIN and is_untagged(content):
            objects[name] = {key: _weight(value, own) for key, value in content.items()}
        else:
            objects[name] = decode(content, own)
    if odd := [name for name, each in objects.items() if not isinstance(each, Mapping)]:
        raise ValueError(f"has objects without a state: {odd}")
    frozen = {name: each.get("frozen", {}) for name, each in tree["objects"].items()}
    if odd := [name for name, each in frozen.items() if not isinstance(each, Mapping)]:
        raise ValueError(f"has objects without checksums: {odd}")
    return objects, frozen


def _weight(encoded: Any, tensors: Tensors) -> Any:
    """A value of a module; a weight is not read before it is loaded, since all may be large."""
    if isinstance(encoded, dict) and encoded.keys() == {"!tensor"}:
        return tensors[encoded["!tensor"]]
    return decode(encoded, tensors)


def in_memory(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """A state with its tensors read, for an object that is no module and was one when it saved."""
    return {k: e.read() if isinstance(e, StoredTensor | OwnShard) else e for k, e in state.items()}


def _own_part(count: int) -> int:
    """The number of the part that this rank loads, of `count` parts."""
    if count == ranks.world_size():
        return ranks.rank()
    if ranks.rank() == 0:
        logger.warning(
            "the checkpoint was written by %d ranks and is loaded by %d: all ranks go on with "
            "the random numbers, and with the sums of an epoch so far, of the first one; what "
            "depends on these is not exactly the same",
            *(count, ranks.world_size()),
        )
    return 0


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
                    if is_spread(value):
                        self._named.setdefault(key, []).append(value)
            elif isinstance(each, Optimizer):
                params = [tensor for group in each.param_groups for tensor in group["params"]]
                if any(map(is_spread, params)):
                    self._kept[name] = params
        self._all = [each for own in self._named.values() for each in own]
        self._all += [e for params in self._kept.values() for e in params if is_spread(e)]

    def of(self, file: str, tensors: Mapping[str, StoredTensor | Tensor]) -> Tensors:
        """The tensors of a file, distributed as those of the script are when they are read."""
        if not self._all or (file in self._modules and file != TRAIN):
            return tensors
        return {name: _shard(each, self._like(name)) for name, each in tensors.items()}

    def of_memory(self, tensors: Mapping[str, StoredTensor | Tensor]) -> Tensors:
        """The same for tensors that were saved in pieces, because they were distributed."""
        likes = self._all
        return {name: _shard(e, [*self._like(name), *likes]) for name, e in tensors.items()}

    def _like(self, name: str) -> list[Any]:
        parts = name.split(".")
        for at, part in enumerate(parts[:-1]):
            if part == "state" and (params := self._kept.get(".".join(parts[:at]))):
                index = parts[at + 1]
                found = [params[int(index)]] if index.isdigit() and int(index) < len(params) else []
                return [each for each in found if is_spread(each)]
        tails = (".".join(parts[at:]) for at in range(len(parts)))
        return next((self._named[tail] for tail in tails if tail in self._named), [])


def _shard(saved: StoredTensor | Tensor, likes: Sequence[Any]) -> StoredTensor | OwnShard | Tensor:
    like = next((each for each in likes if tuple(each.shape) == tuple(saved.shape)), None)
    return saved if like is None else OwnShard(saved, like)

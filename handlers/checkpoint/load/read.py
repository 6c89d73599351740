"""A checkpoint's values, decoded for this rank: of what it distributes, only its own shards.

Functions raise BrokenCheckpoint, or inside of `reading` a ValueError, if no run writes this.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ....engine import ranks
from ....engine.modules import box_of, is_spread, local
from ..directory import (
    OpenFiles,
    Saved,
    StoredTensor,
    check_pieces,
    read_part,
    tensors_by_name,
    verify_portion,
)
from ..format import (
    MEMORY,
    TENSORS,
    TRAIN,
    TREE,
    Places,
    decode,
    rank_file,
    reading,
    tensors_in_order,
    tree_in,
)
from ..weights import weights
from .check import validate_run

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class OwnShard:
    """A saved tensor that the script distributes; only this rank's shard of it is read."""

    saved: StoredTensor
    like: Any
    """The distributed tensor of the script that has the same form."""

    def read(self) -> Tensor:
        """A new distributed tensor with the saved values."""
        from torch.distributed.tensor import DTensor

        like, shard = self.like, self.saved.read(box_of(self.like))
        # For an empty shard, fully_shard makes the rows empty too.
        return DTensor.from_local(
            shard.reshape(local(like).shape), like.device_mesh, like.placements, run_check=False,
            shape=like.shape, stride=torch.empty(like.shape, device="meta").stride(),
        )  # fmt: skip


Tensors = Mapping[str, StoredTensor | OwnShard]
"""By name: tensors that are read when they are decoded or loaded."""
Kept = Mapping[str, Mapping[str, StoredTensor]]
"""By file and name: the tensors that `VerifyingReader` has read already."""


@dataclass(frozen=True)
class SavedRun:
    """What a checkpoint holds for this rank: the states of the objects, and of the run."""

    objects: Mapping[str, Any]
    run: Mapping[str, Any]
    is_own: bool = True
    """False if `run` is another rank's, because the checkpoint has none of this rank."""
    parameters: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    """By optimizer, module and plain name: the index of each parameter in the optimizer's state."""

    buffers: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """By object: the buffers of this rank that differ from those of rank 0."""
    of_ranks: Mapping[str, int] = field(default_factory=dict)
    """The objects with a state for each rank, of another number of ranks than this."""

    @classmethod
    def at(cls, saved: Saved, objects: Mapping[str, Any], kept: Kept | None = None) -> SavedRun:
        """Read a verified checkpoint; of distributed tensors of the script, only this rank's part.

        Raises:
            ValueError: The checkpoint is an export.
        """
        if not saved.manifest.holds_run:
            raise ValueError(
                "it holds exported weights alone, and no run can resume from them; a new one, in "
                f"another directory, begins with them by load_matching(model, {str(saved.path)!r})"
            )
        targets, kept = ScriptTensors(objects), kept or {}
        tensors = {**tensors_by_name(saved, but=kept), **kept}
        states, parameters = _objects(saved, targets, tensors)
        count = saved.manifest.world_size
        number = _number_of_part(count)
        part, own = read_part(saved, number)
        name = f"{rank_file(number)}.json"
        # One process saves tensors whole; several processes save them in pieces.
        whole = targets.of(name, own) if count == 1 else own
        memory = targets.of_memory(tensors.get(MEMORY, {}))
        with reading(file=name):
            run, own_states = cls.of_part(part, {**memory, **whole})
            of_modules = {n for n, e in objects.items() if isinstance(e, Module)}
            buffers = {name: own_states.pop(name) for name in of_modules & own_states.keys()}
            if not all(map(_are_tensors, buffers.values())):
                raise ValueError("has buffers that are no tensors by object and name")
        if count != ranks.world_size() and run["position"] and run["position"]["told"] is not None:
            run["position"]["told_by_ranks"] = [_told_by(saved, each) for each in range(count)]
        if count != ranks.world_size():
            of_ranks = dict.fromkeys(states.keys() & own_states.keys(), count)
            return cls(states, run, number == ranks.rank(), parameters, of_ranks=of_ranks)
        states |= {name: own_states[name] for name in states.keys() & own_states.keys()}
        return cls(states, run, number == ranks.rank(), parameters, buffers)

    @staticmethod
    def of_part(part: Any, tensors: Tensors) -> tuple[Any, dict[str, Any]]:
        """The state of the run in the file of one rank, and its buffers and states of objects."""
        run, own = (decode(part[each], tensors) for each in ("run", "buffers"))
        validate_run(run)
        if not isinstance(own, dict) or not all(isinstance(each, dict) for each in own.values()):
            raise ValueError("has buffers that are no values by object and name")
        return run, own


def _told_by(saved: Saved, rank: int) -> Any:
    """The data's own state when a rank was saved."""
    part, tensors = read_part(saved, rank)
    with reading(file=f"{rank_file(rank)}.json"):
        return decode(part["run"]["position"]["told"], tensors)


def objects_at(saved: Saved, objects: Mapping[str, Any], kept: Kept) -> dict[str, Any]:
    """The states of the objects in a checkpoint."""
    return _objects(saved, ScriptTensors(objects), {**tensors_by_name(saved, but=kept), **kept})[0]


def _are_tensors(own: Any) -> bool:
    return isinstance(own, dict) and all(isinstance(each, Tensor) for each in own.values())


def _objects(
    saved: Saved, targets: ScriptTensors, stored: Kept
) -> tuple[dict[str, Any], dict[str, Any]]:
    """By object: its state, and the names of its parameters."""
    tree = tree_in(saved.path)
    with reading(file=TREE):
        tensors = {file: targets.of(file, each) for file, each in stored.items()}
        states = dict[str, Any]()
        for name, each in tree["objects"].items():
            content, own = each["content"], tensors.get(each["file"], {})
            if each["file"] != TRAIN and _is_plain(content):
                states[name] = {key: _weight(value, own) for key, value in content.items()}
            else:
                states[name] = decode(content, own)
        if odd := [name for name, each in states.items() if not isinstance(each, Mapping)]:
            raise ValueError(f"has objects without a state: {odd}")
        if any(each.get("frozen") for each in tree["objects"].values()):
            raise ValueError("lacks frozen weights, which frozen=False left out")
        names = {name: each.get("parameters", {}) for name, each in tree["objects"].items()}
        of_modules = (indices for own in names.values() for indices in own.values())
        if not all(type(index) is int for indices in of_modules for index in indices.values()):
            raise ValueError("has names of parameters without their indices")
    return states, names


def _is_plain(content: Any) -> bool:
    """True for a state that is a JSON object as it is, rather than under a tag."""
    return isinstance(content, dict) and not any(key.startswith("!") for key in content)


def _weight(encoded: Any, tensors: Tensors) -> Any:
    """A value of a module; a weight is not read before it is loaded, since all may be large."""
    if isinstance(encoded, dict) and encoded.keys() == {"!tensor"}:
        return tensors[encoded["!tensor"]]
    return decode(encoded, tensors)


def in_memory(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """A state with its tensors read, for an object that is no module and was one when it saved."""
    return {k: e.read() if isinstance(e, StoredTensor | OwnShard) else e for k, e in state.items()}


def _number_of_part(count: int) -> int:
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


class ScriptTensors:
    """Finds, for a saved tensor, the distributed tensor of the script that has its layout.

    The state of an optimizer, or a copy of it, is found by the place of its parameter. What a
    handler remembers has the layout of the weight of the same name, such as
    `run.memory.Best.weights.layers.0.weight`; if it was saved in pieces, that of any weight of the
    same shape. A module's own weights are filled as they are; see `load_weights`.
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

    def of(self, file: str, tensors: Mapping[str, StoredTensor]) -> Tensors:
        """The tensors of a file; a read distributes them as the script's tensors are."""
        if not self._all or (file in self._modules and file != TRAIN):
            return tensors
        return {name: _shard(each, self._like(name)) for name, each in tensors.items()}

    def of_memory(self, tensors: Mapping[str, StoredTensor]) -> Tensors:
        """The same for tensors that were saved in pieces, because they were distributed."""
        likes = self._all
        return {name: _shard(e, [*self._like(name), *likes]) for name, e in tensors.items()}

    def _like(self, name: str) -> list[Any]:
        words = name.split(".")
        for at, word in enumerate(words[:-1]):
            if word != "state" and not word.isdigit():
                continue
            owners = (".".join(words[first:at]) for first in range(at))
            if params := next((self._kept[each] for each in owners if each in self._kept), None):
                index = words[at + 1] if word == "state" else word
                found = [params[int(index)]] if index.isdigit() and int(index) < len(params) else []
                return [each for each in found if is_spread(each)]
        tails = (".".join(words[at:]) for at in range(len(words)))
        return next((self._named[tail] for tail in tails if tail in self._named), [])


def _shard(saved: StoredTensor, likes: Sequence[Any]) -> StoredTensor | OwnShard:
    like = next((each for each in likes if tuple(each.shape) == tuple(saved.shape)), None)
    return saved if like is None else OwnShard(saved, like)


class VerifyingReader:
    """Verifies checkpoints, and keeps the tensors of the last good one, except modules' weights.

    Each tensor gets memory of its own, which an optimizer or a handler takes over. Weights are
    copied from their file into the module after all files are verified: the operating system still
    has the file in its cache, so this process needs no memory for them.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, dict[str, StoredTensor]] = {}
        """By file and name."""

    def verify(self, saved: Saved) -> None:
        """Read every file, and compare sizes and checksums, as `verify_files` does."""
        self.tensors = {}
        name = f"{TRAIN}{TENSORS}"
        made, into = _memory_for(saved.path / name) if name in saved.manifest.files else ({}, None)
        verify_portion(saved, into={name: into} if into else {})
        check_pieces(saved)
        self.tensors = {TRAIN: made} if into else {}


def _memory_for(path: Path) -> tuple[dict[str, StoredTensor], Places | None]:
    """The tensors of a file with memory for their values, and the places of all bytes of the file.

    None for a file that cannot be read as a whole. The reader of single tensors then reports what
    is wrong with it, and needs no memory for the holes of a sparse file.
    """
    made, files = dict[str, StoredTensor](), OpenFiles(path.parent)
    try:
        header, infos = tensors_in_order(path)
        if path.lstat().st_blocks * 512 < sum(each.size for each in infos.values()):
            return {}, None
        for name, info in infos.items():
            kept = torch.empty(info.shape, dtype=getattr(torch, info.dtype), device="cpu")
            made[name] = StoredTensor(info, files, path.name, name, kept=kept)
        bodies = [e.read().reshape(-1).view(torch.uint8).numpy().data for e in made.values()]
    except (AttributeError, OSError, ValueError, MemoryError, RuntimeError):
        return {}, None
    return made, Places([memoryview(bytearray(header)), *bodies])

"""A checkpoint's values, decoded for this rank."""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ....engine import ranks
from ...files import Tables
from ..directory import Saved, TensorSource, read_checkpoint, read_part
from ..format import MEMORY, TRAIN, decode, is_untagged, rank_file, reading
from ..sharding import Targets
from .validate import validate_run

logger = logging.getLogger("camshaft")


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
        in_memory: Mapping[str, TensorSource] | None = None,
    ) -> SavedRun:
        """Read a verified checkpoint; of distributed tensors of the script, only this rank's part.

        Raises:
            BrokenCheckpoint: A file has a wrong format, or no run writes such values.
            ValueError: The checkpoint is an export.
        """
        tree, tensors, targets = _read(saved, objects, in_memory)
        held = {file: targets.of(file, source) for file, source in tensors.items()}
        if not saved.manifest.holds_run:
            raise ValueError("it holds exported weights alone, and no run can resume from them")
        with reading(file="state.json"):
            states, frozen = _objects(tree, held)
        count = saved.manifest.world_size
        own = _own_part(count)
        name = f"{rank_file(own)}.json"
        part, source = read_part(saved, own)
        memory = targets.of_memory(tensors[MEMORY]) if MEMORY in tensors else dict[str, Tensor]()
        with reading(file=name):
            run, buffers = cls.of_part(part, ChainMap(source, memory))  # type: ignore[arg-type]
        is_own = own == ranks.rank() and count == ranks.world_size()
        return cls(states, run, own == ranks.rank(), frozen, buffers if is_own else {})

    @staticmethod
    def of_part(
        part: Any, tensors: Mapping[str, Tensor]
    ) -> tuple[Any, dict[str, dict[str, Tensor]]]:
        """The state of the run in the file of one rank, and its buffers.

        Raises:
            ValueError: No run writes such values.
        """
        tables = Tables()
        run, buffers = (decode(part[each], tensors, tables) for each in ("run", "buffers"))
        validate_run(run)
        if not isinstance(buffers, dict) or odd_buffers(buffers):
            raise ValueError("has buffers that are no tensors by object and name")
        return run, buffers


def objects_at(
    saved: Saved,
    objects: Mapping[str, Any],
    in_memory: Mapping[str, TensorSource] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of the objects in a checkpoint or export, and the checksums of what it left out.

    Raises:
        BrokenCheckpoint: A file has a wrong format.
    """
    tree, tensors, targets = _read(saved, objects, in_memory)
    with reading(file="state.json"):
        return _objects(tree, {file: targets.of(file, source) for file, source in tensors.items()})


def _read(
    saved: Saved, objects: Mapping[str, Any], in_memory: Mapping[str, TensorSource] | None
) -> tuple[Any, Mapping[str, Any], Targets]:
    return *read_checkpoint(saved, in_memory), Targets(objects)


def odd_buffers(buffers: dict[Any, Any]) -> bool:
    """True if these are not buffers by object and name."""
    return not all(
        isinstance(own, dict) and all(isinstance(each, Tensor) for each in own.values())
        for own in buffers.values()
    )


def _objects(
    tree: Any, tensors: Mapping[str, Mapping[str, Tensor]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of the objects, and the checksums of the weights that were left out."""
    objects, tables = dict[str, Any](), Tables()
    for name, each in tree["objects"].items():
        # A module may be large, so its weights are decoded one by one when they are loaded.
        is_module = each["file"] != TRAIN and is_untagged(each["content"])
        own = tensors.get(each["file"], {})
        objects[name] = (Decoded if is_module else decode)(each["content"], own, tables)
    if odd := [name for name, each in objects.items() if not isinstance(each, Mapping)]:
        raise ValueError(f"has objects without a state: {odd}")
    frozen = {name: each.get("frozen", {}) for name, each in tree["objects"].items()}
    if odd := [name for name, each in frozen.items() if not isinstance(each, Mapping)]:
        raise ValueError(f"has objects without checksums: {odd}")
    return objects, frozen


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


@dataclass(frozen=True)
class Decoded(Mapping[str, Any]):
    """A mapping whose values are decoded when they are looked up."""

    encoded: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    tables: Tables

    def __getitem__(self, name: str) -> Any:
        return decode(self.encoded[name], self.tensors, self.tables)

    def glance(self, name: str) -> Any:
        """A value for use at once, to look at or copy from; a weight may be a view of its file."""
        value, source = self.encoded[name], self.tensors
        inside = value.get("!tensor") if isinstance(value, dict) and len(value) == 1 else None
        if isinstance(source, TensorSource) and isinstance(inside, str) and inside in source:
            return source.glance(inside)
        return self[name]

    def __contains__(self, name: object) -> bool:
        """True if there is a value of this name; the value is not decoded."""
        return name in self.encoded

    def __iter__(self) -> Iterator[str]:
        return iter(self.encoded)

    def __len__(self) -> int:
        return len(self.encoded)

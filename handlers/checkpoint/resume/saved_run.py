"""A checkpoint's values, decoded for this rank."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ....engine import ranks
from ...files import Tables
from ..format import TRAIN, decode, is_untagged, reading
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

    @classmethod
    def of(cls, tree: Any, tensors: Mapping[str, Mapping[str, Tensor]]) -> SavedRun:
        """Decode what `read_checkpoint` gave.

        Raises:
            BrokenCheckpoint: No run writes such values.
            ValueError: The checkpoint is an export.
        """
        with reading(file="state.json"):
            parts, objects, tables = tree["run"], dict[str, Any](), Tables()
            for name, each in tree["objects"].items():
                # A module may be large, so its weights are decoded one by one when they are loaded.
                is_module = each["file"] != TRAIN and is_untagged(each["content"])
                objects[name] = (Decoded if is_module else decode)(
                    each["content"], tensors[each["file"]], tables
                )
            if odd := [name for name, each in objects.items() if not isinstance(each, Mapping)]:
                raise ValueError(f"has objects without a state: {odd}")
            frozen = {name: each.get("frozen", {}) for name, each in tree["objects"].items()}
            if odd := [name for name, each in frozen.items() if not isinstance(each, Mapping)]:
                raise ValueError(f"has objects without checksums: {odd}")
            runs = [decode(part, tensors[TRAIN], tables) for part in parts[: ranks.world_size()]]
            for run in runs:
                validate_run(run)
        if not parts:
            raise ValueError("it holds exported weights alone, and no run can resume from them")
        own, count = ranks.rank(), ranks.world_size()
        if len(parts) != count:
            own = 0
            logger.warning(
                "the checkpoint was written by %d ranks and is loaded by %d: all ranks go on with "
                "the random numbers, and with the sums of an epoch so far, of the first one; what "
                "depends on these is not exactly the same",
                *(len(parts), count),
            )
            if (position := runs[own]["position"]) is not None:
                position.setdefault("dealing", {"ranks": len(parts)})  # of before: it tells nothing
        return cls(objects, runs[own], own == ranks.rank(), frozen)


@dataclass(frozen=True)
class Decoded(Mapping[str, Any]):
    """A mapping whose values are decoded when they are looked up."""

    encoded: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    tables: Tables

    def __getitem__(self, name: str) -> Any:
        return decode(self.encoded[name], self.tensors, self.tables)

    def __iter__(self) -> Iterator[str]:
        return iter(self.encoded)

    def __len__(self) -> int:
        return len(self.encoded)

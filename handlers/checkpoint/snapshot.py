"""What a checkpoint holds of a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import Module

from ...engine import ranks
from ...engine.state.state import State
from .format.codec import Encoder, decode, is_plain
from .format.errors import reading
from .format.manifest import PLAIN_NAME
from .resume.validate import rehearse_run
from .weights import weights

logger = logging.getLogger("camshaft")

TRAIN = "train"
"""The file of all tensors that are not a module's."""


@dataclass(frozen=True)
class Snapshot:
    """A run at a commit point: a tree of plain values, and tensors by file and name.

    Each module among the engine's objects has a file of its own, which is called like the object
    and holds the plain names of parameters and buffers. Tied weights are there under each of their
    names, so that the file alone loads into the model.
    """

    tree: Any
    tensors: Mapping[str, Mapping[str, Tensor]]


def take_part(state: State[Any, Any]) -> tuple[Any, dict[str, Tensor]]:
    """What this rank alone knows of the run: the state, with this rank's generators.

    Raises:
        TypeError: It holds something that a checkpoint cannot.
    """
    encoder = Encoder()
    tree = encoder.encode(state.state_dict(), f"run.{ranks.rank()}")
    return tree, {name: tensor.cpu() for name, tensor in encoder.tensors.items()}


def take(
    objects: Mapping[str, Any],
    parts: list[tuple[Any, dict[str, Tensor]]],
    lent: Mapping[Module, Mapping[str, Tensor]] | None = None,
) -> Snapshot:
    """The snapshot of the engine's objects and of every rank's part; it shares their memory.

    Modules that hold another one's weights for a while give their own, which `lent` has.

    Raises:
        TypeError: They hold something that a checkpoint cannot.
    """
    train = Encoder()
    for _, own in parts:
        train.tensors.update(own)
    files, saved = {TRAIN: train}, {}
    for name, each in objects.items():
        if isinstance(each, Module) and name != TRAIN and PLAIN_NAME.fullmatch(name):
            files[name] = Encoder(name)
            saved[name] = {"file": name, "content": files[name].encode(weights(each, lent))}
        else:
            content = weights(each, lent) if isinstance(each, Module) else each.state_dict()
            saved[name] = {"file": TRAIN, "content": train.encode(content, name)}
    tree = {"objects": saved, "run": [own for own, _ in parts]}
    if not parts and not train.tensors:  # an export of modules
        del files[TRAIN]
    return Snapshot(tree, {file: encoder.tensors for file, encoder in files.items()})


@dataclass(frozen=True)
class Decoded(Mapping[str, Any]):
    """The values of a mapping, each decoded when it is asked for: a model's, one by one."""

    encoded: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def __getitem__(self, name: str) -> Any:
        return decode(self.encoded[name], self.tensors)

    def __iter__(self) -> Iterator[str]:
        return iter(self.encoded)

    def __len__(self) -> int:
        return len(self.encoded)


@dataclass(frozen=True)
class Content:
    """A snapshot as this rank sees it, with plain values and tensors where they belong."""

    objects: Mapping[str, Any]
    run: Mapping[str, Any]
    is_own: bool = True
    """False if this is another rank's part, for want of an own one."""


def content(snapshot: Snapshot) -> Content:
    """What a snapshot holds for this rank.

    Raises:
        BrokenCheckpoint: It holds nothing that `take` makes.
        ValueError: It holds exported weights alone.
    """
    with reading(file="state.json"):
        parts, saved = snapshot.tree["run"], dict[str, Any]()
        for name, each in snapshot.tree["objects"].items():
            of_a_module = each["file"] != TRAIN  # may be large, and is loaded weight by weight
            read = Decoded if of_a_module and is_plain(each["content"]) else decode
            saved[name] = read(each["content"], snapshot.tensors[each["file"]])
        if odd := [name for name, each in saved.items() if not isinstance(each, Mapping)]:
            raise ValueError(f"has objects without a state: {odd}")
        runs = [decode(part, snapshot.tensors[TRAIN]) for part in parts[: ranks.world_size()]]
        for run in runs:
            rehearse_run(run)
    if not parts:
        raise ValueError("it holds exported weights alone, and no run can go on from these")
    own, count = ranks.rank(), ranks.world_size()
    if len(parts) != count:
        own = 0
        logger.warning(
            "the checkpoint was written by %d ranks and is loaded by %d: all of them go on with "
            "the random numbers of the first one, so this is not exactly the same run",
            *(len(parts), count),
        )
    return Content(saved, runs[own], own == ranks.rank())

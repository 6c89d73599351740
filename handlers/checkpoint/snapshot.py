"""Takes the part of a run that a checkpoint saves."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from ...engine import State, ranks
from .format import FROZEN, PLAIN_NAME, TRAIN, Encoder, needing_memory
from .frozen import apart
from .weights import weights

OF_RANKS = re.compile(r"rank-\d+")
"""The names of files that ranks write; see `rank_file`."""


@dataclass(frozen=True)
class Snapshot:
    """A run at a commit point: a tree of plain values, and tensors by file and name.

    Each module among the engine's objects has a file of its own with the object's name, which
    holds parameters and buffers under their plain names. Tied weights are saved under each of
    their names, so that the file alone loads into the model.
    """

    tree: Any
    tensors: Mapping[str, Mapping[str, Tensor]]
    others: Mapping[str, Any] = field(default_factory=dict)
    """Further trees, by the names of their files; a rank besides the first has no other."""
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensors that a rank's part refers to besides its own; see `Part`."""
    frozen: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By file, the tensors that go to a file of their own beside it; see `apart`."""

    @property
    def files(self) -> dict[str, dict[str, Tensor]]:
        """The tensors by the file that they are written to."""
        found = dict[str, dict[str, Tensor]]()
        for file, tensors in self.tensors.items():
            own = self.frozen.get(file, ())
            found[file] = {name: each for name, each in tensors.items() if name not in own}
            if own:
                found[file + FROZEN] = {name: tensors[name] for name in tensors if name in own}
        return found


class Part(NamedTuple):
    """The state of the run on one rank, encoded."""

    tree: Any
    tensors: dict[str, Tensor]
    """Its tensors, on the CPU."""
    shared: Mapping[str, Tensor] = {}  # a named tuple has no factories
    """The distributed tensors that handlers remember, by names that are the same on all ranks."""


def take_part(state: State[Any, Any]) -> Part:
    """The state of the run on this rank, encoded, with its tensors on the CPU.

    Raises:
        OSError: Memory has run out.
        TypeError: A value cannot be saved.
    """
    encoder = Encoder(once=True, of_rank=True)
    with needing_memory("take the state of the run and what its handlers remember"):
        tree = encoder.encode(state.state_dict(), f"run.{ranks.rank()}")
    size = sum(each.nbytes for each in encoder.tensors.values())
    with needing_memory(f"copy the tensors of the run's state, {size:,} bytes"):
        own = {name: tensor.cpu() for name, tensor in encoder.tensors.items()}
        return Part(tree, own, encoder.shared)


def is_file_name(name: str) -> bool:
    """True for the name of an object that its file can have; other objects are in one file."""
    if name == TRAIN or name.endswith(FROZEN) or OF_RANKS.fullmatch(name):
        return False
    return len(name) <= 200 and PLAIN_NAME.fullmatch(name) is not None


def take(
    objects: Mapping[str, Any],
    parts: Sequence[Part],
    lent: Mapping[Module, Mapping[str, Tensor]] | None = None,
    left_out: Mapping[str, Mapping[str, int]] | None = None,
    *,
    split: bool = False,
) -> Snapshot:
    """The snapshot of these objects and of every rank's part; it shares their memory.

    A module that holds another module's weights for a while is saved with its own, from `lent`. Of
    the weights `left_out`, by object, the snapshot holds the given checksums alone. With
    `split`, frozen weights may get a file of their own.

    Raises:
        OSError: Memory has run out.
        TypeError: A value cannot be saved.
    """
    train = Encoder(once=True)
    for part in parts:
        train.tensors.update(part.tensors)
    files, saved = {TRAIN: train}, {}
    for name, each in objects.items():
        out = (left_out or {}).get(name, {})
        is_file = isinstance(each, Module) and is_file_name(name)
        file = name if is_file else TRAIN
        encoder = files.setdefault(file, Encoder(name))
        with needing_memory(f"take the state_dict() of {name!r}"):
            own = weights(each, lent) if isinstance(each, Module) else each.state_dict()
            if out:
                own = {key: own[key] for key in own if key not in out}
            content = encoder.encode(own, "" if is_file else name)
        saved[name] = {"file": file, "content": content}
        if out:
            saved[name]["frozen"] = dict(out)
    tree = {"objects": saved, "run": [part.tree for part in parts]}
    if not parts and not train.tensors:  # an export of modules
        del files[TRAIN]
    tensors = {file: encoder.tensors for file, encoder in files.items()}
    modules = {file: objects[file] for file in files if file != TRAIN}
    return Snapshot(tree, tensors, frozen=apart(modules, tensors) if split else {})

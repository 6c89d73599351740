"""Takes the part of a run that one rank of several writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from json import dumps
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ....engine import ranks
from ..format import MEMORY, PIECES, TRAIN, Encoder, rank_file
from ..sharding import Layout, Layouts, is_sharded
from ..snapshot import Part, Snapshot, is_file_name, take
from ..weights import parameters_of
from .buffers import Buffers


@dataclass(frozen=True)
class Taken:
    """What this rank writes, in the run's own memory, and how tensors lie on the ranks."""

    snapshot: Snapshot
    layout: Layout
    objects: Sequence[str]
    """The names of the run's objects."""

    @property
    def digest(self) -> int:
        """The same number on all ranks if they save the same objects, distributed in one way."""
        text = dumps([sorted(self.objects), self.layout.digest])
        return int(sha256(text.encode()).hexdigest()[:12], 16)


def take_together(
    objects: Mapping[str, Any],
    part: Part | None,
    lent: Mapping[Module, Mapping[str, Tensor]],
    left_out: Mapping[str, Mapping[str, int]],
    buffers: Buffers,
    layouts: Layouts,
) -> Taken:
    """What this rank writes: of these objects, and its part of the run unless that is None.

    What does not change from one save to the next is kept in `layouts`.

    Raises:
        OSError: Memory has run out.
        TypeError: A value cannot be saved.
    """
    own, shared = rank_file(ranks.rank()), part.shared if part else {}
    sharded = bool(shared) or _hold_shards(objects)
    tree: Any = None
    frozen: Mapping[str, Collection[str]] = {}
    tensors: dict[str, Mapping[str, Tensor]] = {}
    if sharded or ranks.rank() == 0:
        whole = take(objects, [], lent, left_out, split=True)
        tree, tensors = whole.tree, dict(whole.tensors)
        frozen = {} if sharded else whole.frozen
    mine = dict[str, Tensor]()
    others = dict[str, Any]()
    if part is not None:
        encoder = Encoder("buffers")
        differing = encoder.encode(buffers, "buffers")
        others[f"{own}.json"] = {"run": part.tree, "buffers": differing}
        mine |= part.tensors | encoder.tensors
    layout = Layout({}, {})
    if sharded:
        tensors |= {MEMORY: shared} if shared else {}
        layout = layouts.of(tensors, _Same(objects))
        mine |= layout.own(tensors)
        tensors = {}
    if mine:
        tensors[own] = mine
    if ranks.rank() > 0:
        tree = None
    elif sharded:
        others[PIECES] = layout.tree
    return Taken(Snapshot(tree, tensors, others, shared, frozen), layout, [*objects])


class _Same:
    """Knows which tensors are the same on all ranks: parameters, and what optimizers keep."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._files = {
            name: parameters_of(each).keys()
            for name, each in objects.items()
            if isinstance(each, Module) and is_file_name(name)
        }
        optimizers = (name for name, each in objects.items() if isinstance(each, Optimizer))
        self._prefixes = tuple(f"{name}." for name in optimizers)

    def __call__(self, file: str, name: str) -> bool:
        if file == TRAIN:
            return name.startswith(self._prefixes)
        return name in self._files.get(file, ())


def _hold_shards(objects: Mapping[str, Any]) -> bool:
    for each in objects.values():
        if isinstance(each, Module):
            held = [*each.parameters(), *each.buffers()]
        elif isinstance(each, Optimizer):
            held = [tensor for group in each.param_groups for tensor in group["params"]]
        else:
            continue
        if any(map(is_sharded, held)):
            return True
    return False

"""Takes what a rank saves at a commit point: the run's objects, and its own part of the run."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from json import dumps
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ....engine import State, ranks
from ..format import (
    FROZEN,
    MAPPINGS,
    MEMORY,
    PIECES,
    PLAIN_NAME,
    TRAIN,
    TREE,
    Encoder,
    TensorInfo,
    UnreadableError,
    is_untagged,
    needing_memory,
    rank_file,
)
from ..frozen import apart
from ..load import validate_run
from ..sharding import Layout, Layouts, is_sharded
from ..weights import named_parameters_of, weights
from .alike import Buffers

OF_RANKS = re.compile(r"rank-\d+")
"""The names of files that ranks write; see `rank_file`."""


@dataclass(frozen=True)
class Snapshot:
    """What one rank writes: trees of plain values, and tensors. It shares the run's memory.

    `state.json` describes the run's objects. Each module has a file of tensors with the object's
    name, which holds parameters and buffers under their plain names. Tied weights are saved under
    each of their names, so that the file alone loads into the model. Other objects are in
    `train.safetensors`. Each rank has files of its own for the run's state and for pieces of
    sharded tensors.
    """

    trees: Mapping[str, Any]
    """By the names of their files."""
    tensors: Mapping[str, Mapping[str, Tensor]]
    """By file, without its ending, and name."""
    pieces: Mapping[str, TensorInfo] = field(default_factory=dict)
    """The pieces of sharded tensors among the tensors, by their names in this rank's file."""
    digest: int = 0
    """The same number on all ranks if they save the same objects, distributed in one way."""


class Part(NamedTuple):
    """The state of the run on one rank, encoded."""

    tree: Any
    tensors: dict[str, Tensor]
    """Its tensors, on the CPU."""
    shared: Mapping[str, Tensor] = {}  # a named tuple has no factories
    """The distributed tensors that handlers remember, by names that are the same on all ranks."""


def take_run(
    objects: Mapping[str, Any],
    part: Part,
    lent: Mapping[Module, Mapping[str, Tensor]],
    left_out: Mapping[str, Mapping[str, int]],
    buffers: Buffers,
    layouts: Layouts,
) -> Snapshot:
    """What this rank writes of a run: its part, and of the objects what no other rank writes.

    Rank 0 writes the objects. Of sharded ones each rank writes pieces, by a table that does not
    change from one save to the next as long as `layouts` has it.

    Raises:
        OSError: Memory has run out.
        TypeError: A value cannot be saved.
    """
    own, count = rank_file(ranks.rank()), ranks.world_size()
    sharded = count > 1 and (bool(part.shared) or _hold_shards(objects))
    encoder = Encoder("buffers")
    trees = {f"{own}.json": {"run": part.tree, "buffers": encoder.encode(buffers, "buffers")}}
    mine = part.tensors | encoder.tensors
    tensors = dict[str, Mapping[str, Tensor]]()
    layout: Layout | None = None
    if sharded or ranks.rank() == 0:
        whole = take(objects, lent, left_out)
        _refuse_stateless(whole.trees[TREE]["objects"])
        tensors = dict(whole.tensors)
        trees |= whole.trees if ranks.rank() == 0 else {}
    if sharded:
        tensors |= {MEMORY: part.shared} if part.shared else {}
        layout = layouts.of(tensors, _Same(objects))
        mine |= layout.own(tensors)
        trees |= {PIECES: layout.tree} if ranks.rank() == 0 else {}
        tensors = {}
    else:
        tensors = _with_frozen_apart(objects, tensors)
    if mine:
        tensors[own] = mine
    digest = _digest(objects, layout) if count > 1 else 0
    return Snapshot(trees, tensors, layout.infos if layout else {}, digest)


def _with_frozen_apart(
    objects: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]]
) -> dict[str, Mapping[str, Tensor]]:
    """The tensors by file, where frozen weights of some modules get a file of their own."""
    found = dict(tensors)
    modules = {file: objects[file] for file in tensors if file != TRAIN}
    for file, frozen in apart(modules, tensors).items():
        found[file] = {name: each for name, each in tensors[file].items() if name not in frozen}
        found[file + FROZEN] = {n: each for n, each in tensors[file].items() if n in frozen}
    return found


def _digest(objects: Collection[str], layout: Layout | None) -> int:
    text = dumps([sorted(objects), layout.digest if layout else ""])
    return int(sha256(text.encode()).hexdigest()[:12], 16)


def take_part(state: State[Any, Any]) -> Part:
    """The state of the run on this rank, encoded, with its tensors on the CPU.

    Raises:
        OSError: Memory has run out, or no run could be resumed from this state.
        TypeError: A value cannot be saved.
    """
    encoder = Encoder(once=True, of_rank=True)
    with needing_memory("take the state of the run and what its handlers remember"):
        run = state.state_dict()
        tree = encoder.encode(run, f"run.{ranks.rank()}")
    try:
        validate_run(run, generators=False)
    except ValueError as error:
        raise _unusable(error) from error
    size = sum(each.nbytes for each in encoder.tensors.values())
    with needing_memory(f"copy the tensors of the run's state, {size:,} bytes"):
        own = {name: tensor.cpu() for name, tensor in encoder.tensors.items()}
        return Part(tree, own, encoder.shared)


def take(
    objects: Mapping[str, Any],
    lent: Mapping[Module, Mapping[str, Tensor]] | None = None,
    left_out: Mapping[str, Mapping[str, int]] | None = None,
) -> Snapshot:
    """The snapshot of these objects alone, without a run.

    A module that holds another module's weights for a while is saved with its own, from `lent`. Of
    the weights `left_out`, by object, the snapshot holds the given checksums alone.

    Raises:
        OSError: Memory has run out.
        TypeError: A value cannot be saved.
    """
    files, saved = dict[str, Encoder](), dict[str, Any]()
    for name, each in objects.items():
        out = (left_out or {}).get(name, {})
        is_file = isinstance(each, Module) and is_file_name(name)
        file = name if is_file else TRAIN
        # An error names the object by the file's name, or else by the path in the file.
        encoder = files.setdefault(file, Encoder(name) if is_file else Encoder(once=True))
        with needing_memory(f"take the state_dict() of {name!r}"):
            own = weights(each, lent) if isinstance(each, Module) else each.state_dict()
            if out:
                own = {key: own[key] for key in own if key not in out}
            content = encoder.encode(own, "" if is_file else name)
        saved[name] = {"file": file, "content": content}
        if out:
            saved[name]["frozen"] = dict(out)
        if isinstance(each, Optimizer):
            saved[name]["parameters"] = parameter_names(each, objects)
    tensors = {file: encoder.tensors for file, encoder in files.items()}
    return Snapshot({TREE: {"objects": saved}}, tensors)


def _refuse_stateless(saved: Mapping[str, Any]) -> None:
    """Refuse objects that a resume would refuse: their state is no mapping."""
    tags = {*MAPPINGS.values()}
    contents = {name: each["content"] for name, each in saved.items()}
    odd = [
        name
        for name, each in contents.items()
        if not (is_untagged(each) or (isinstance(each, dict) and each.keys() <= tags))
    ]
    if odd:
        raise _unusable(f"has objects without a state: {odd}")


def _unusable(why: object) -> UnreadableError:
    return UnreadableError(f"no run could be resumed from this checkpoint: {why}")


def is_file_name(name: str) -> bool:
    """True for the name of an object that its file can have; other objects are in one file."""
    if name == TRAIN or name.endswith(FROZEN) or OF_RANKS.fullmatch(name):
        return False
    return len(name) <= 200 and PLAIN_NAME.fullmatch(name) is not None


def parameter_names(optimizer: Optimizer, objects: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """By module and plain name: the index by which the optimizer's state calls each parameter."""
    groups = optimizer.param_groups
    indices = {id(p): n for n, p in enumerate(p for group in groups for p in group["params"])}
    named = {name: named_parameters_of(m) for name, m in objects.items() if isinstance(m, Module)}
    found = {
        name: {key: indices[id(each)] for key, each in own.items() if id(each) in indices}
        for name, own in named.items()
    }
    return {name: own for name, own in found.items() if own}


class _Same:
    """Knows which tensors are the same on all ranks: parameters, and what optimizers keep."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._files = {
            name: named_parameters_of(each).keys()
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

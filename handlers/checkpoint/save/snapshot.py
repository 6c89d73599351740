"""What a rank saves at a commit point: taken from the run, and copied to memory or streamed."""

from __future__ import annotations

import mmap
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ....engine import State, ranks
from ...files import text_of
from ..directory import Directory, Saved, read_part
from ..format import (
    FROZEN,
    MAPPINGS,
    MEMORY,
    PIECES,
    PLAIN_NAME,
    TENSORS,
    TRAIN,
    TREE,
    Encoder,
    Manifest,
    Payload,
    TensorInfo,
    UnreadableError,
    header_of,
    installed_versions,
    needing_memory,
    rank_file,
    reading,
    stream_of,
)
from ..load import OF_SCRIPT, SavedRun
from ..sharding import Layout, is_sharded
from ..weights import (
    has_groups,
    named_parameters_of,
    parameter_names,
    some_checksums,
    weights,
    with_frozen_apart,
)
from .read_back import ReadBack
from .team import buffers_of_own, check_same_weights, is_dense

OF_OPTIMIZERS = (
    "In a subclass, let state_dict() give such values for it, and load_state_dict() make it of "
    "them again; or take another optimizer, such as torch.optim.AdamW or Muon"
)
UNUSABLE = "no run could be resumed from this checkpoint: "
OF_MAPPINGS = {*MAPPINGS.values()}
OF_RANKS = re.compile(r"rank-\d+")
"""The names of files that ranks write; see `rank_file`."""
Own = Mapping[str, Mapping[str, Any]]
"""By object: what a rank has otherwise than rank 0; see `own_states`."""


@dataclass(frozen=True)
class Snapshot:
    """The data that one rank writes: plain values and tensors. It shares the run's memory.

    `Checkpoint` says which file holds what. Tied weights are saved under each of their names, so
    that a module's file alone loads into the model.
    """

    trees: Mapping[str, Any]
    """By the names of their files."""
    tensors: Mapping[str, Mapping[str, Tensor]]
    """By file, without its ending, and name."""
    pieces: Mapping[str, TensorInfo] = field(default_factory=dict)
    """The pieces of sharded tensors among the tensors, by their names in this rank's file."""
    digest: int = 0
    """The same number on all ranks if they save the same objects, distributed in one way."""
    ready: Mapping[str, Payload] = field(default_factory=dict)
    """Files that need no copy, by name."""

    @classmethod
    def of(
        cls,
        state: State[Any, Any],
        own: Own | None = None,
        layout: Layout | None = None,
        read_back: ReadBack | None = None,
    ) -> Snapshot:
        """What this rank writes of a run; see `take_run`.

        Without the `own` states of this rank, all ranks call this together, to compare theirs.
        """
        engine = state.engine
        own = own_states(engine.objects) if own is None else own
        part, layout = take_part(state), layout or Layout()
        return take_run(engine.objects, part, layout, engine.lent, own, read_back)

    def streamed(self) -> dict[str, Payload]:
        """The files, written straight from the run's memory: for a run that waits meanwhile."""
        files = {f"{f}{TENSORS}": stream_of(e, e.__getitem__) for f, e in self.tensors.items()}
        return files | self.plain()

    def plain(self) -> dict[str, Payload]:
        """The files without the tensors."""
        trees = {file: Payload.of(text_of(tree).encode()) for file, tree in self.trees.items()}
        return trees | dict(self.ready)


class Part(NamedTuple):
    """The state of the run on one rank, encoded."""

    tree: Any
    tensors: dict[str, Tensor]
    """Its tensors, on the CPU."""
    shared: Mapping[str, Tensor] = {}  # a named tuple has no factories
    """The distributed tensors that handlers remember, by names that are the same on all ranks."""


def own_states(objects: Mapping[str, Any]) -> Own:
    """What ranks have otherwise than rank 0: buffers of modules, and states of other objects.

    All ranks have to call this, at each save: ranks that train apart may be alike at the first.

    Raises:
        ValueError: The weights of a module differ: on all ranks.
    """
    if ranks.world_size() == 1:
        return {}
    found = buffers_of_own(objects)
    sums = {name: _sum_of(objects[name]) for name in sorted(objects)}
    if all(ranks.decided([_digest_of(sums)], lambda rows: (rows == rows[0]).all(0))):
        return found
    first = ranks.from_first(sums)
    odd = set[str]().union(*ranks.gathered([n for n in sums if sums[n] != first.get(n)]))
    if any(isinstance(objects.get(name), Module) for name in odd):
        check_same_weights(objects)
    apart = {n: e for n, e in objects.items() if n in odd and not isinstance(e, Module)}
    return {**found, **{name: _state_of(each) for name, each in apart.items()}}


def _sum_of(thing: Any) -> int:
    """A checksum of a state, or of the weights of a module, by some values of each tensor."""
    try:
        if isinstance(thing, Module):
            return _digest_of(some_checksums(filter(is_dense, thing.parameters())))
        encoder = Encoder()
        tree = encoder.encode(_state_of(thing))
        tensors = encoder.tensors.values()
        if any(map(is_sharded, tensors)):
            return 0
        forms = [(str(each.dtype), *each.shape) for each in tensors]
        return _digest_of([tree, forms, some_checksums(tensors)])
    except Exception:  # the save itself tells why, on all ranks
        return 0


def _digest_of(value: Any) -> int:
    return int(sha256(dumps(value).encode()).hexdigest()[:12], 16)


def take_run(
    objects: Mapping[str, Any],
    part: Part,
    layout: Layout,
    lent: Mapping[Module, Mapping[str, Tensor]],
    own_of_objects: Own,
    read_back: ReadBack | None = None,
) -> Snapshot:
    """The data that this rank writes: its part of the run, and its share of the objects.

    Rank 0 writes the objects. Of sharded ones each rank writes pieces, by a table that does not
    change from one save to the next as long as the tensors lie as before.
    """
    own, is_first = rank_file(ranks.rank()), ranks.rank() == 0
    sharded = ranks.world_size() > 1 and (bool(part.shared) or _hold_shards(objects))
    encoder = Encoder("buffers", once=True)
    apart = encoder.encode(own_of_objects, "buffers")
    trees = {f"{own}.json": {"run": part.tree, "buffers": apart}}
    mine = part.tensors | encoder.tensors
    tensors = dict[str, Mapping[str, Tensor]]()
    if sharded or is_first:
        # A table of pieces is of what all ranks have in one form, as optimizers and modules are.
        apart_of = own_of_objects if sharded else {}
        left = [n for n in apart_of if not isinstance(objects[n], Module | Optimizer)]
        whole = take({n: each for n, each in objects.items() if n not in left}, lent)
        saved = whole.trees[TREE]["objects"]
        saved |= {name: {"file": TRAIN, "content": {}} for name in left}
        if odd := [name for name, each in saved.items() if not _is_mapping(each["content"])]:
            raise UnreadableError(
                f"{UNUSABLE}the state_dict() of {odd} has to give a dict, no list"
            )
        tensors_of = (each for own in whole.tensors.values() for each in own.items())
        form: list[object] = [(name, each.dtype, each.shape) for name, each in tensors_of]
        optimizers = (each for each in objects.values() if isinstance(each, Optimizer))
        form += [[len(group["params"]) for group in each.param_groups] for each in optimizers]
        if read_back is not None and form != read_back.form:
            read_back.check(objects, saved, whole.tensors)
            read_back.form = form
        tensors |= whole.tensors
        trees |= whole.trees if is_first else {}
    if sharded:
        tensors |= {MEMORY: part.shared} if part.shared else {}
        layout.update(tensors, _same_on_all_ranks(objects))
        mine |= layout.own(tensors)
        trees |= {PIECES: layout.tree} if is_first else {}
        tensors = {}
    else:
        modules = {file: objects[file] for file in tensors if file != TRAIN}
        tensors = with_frozen_apart(modules, tensors)
    if mine:
        tensors[own] = mine
    digest = _digest_of([sorted(objects), layout.digest if sharded else ""])
    return Snapshot(trees, tensors, layout.infos if sharded else {}, digest)


def take_part(state: State[Any, Any]) -> Part:
    """The state of the run on this rank, encoded, with its tensors on the CPU."""
    encoder = Encoder(once=True, of_rank=True)
    with needing_memory("take the state of the run and what its handlers remember"):
        run = state.state_dict()
        tree = encoder.encode(run, f"run.{ranks.rank()}")
    size = sum(each.nbytes for each in encoder.tensors.values())
    with needing_memory(f"copy the tensors of the run's state, {size:,} bytes"):
        own = {name: tensor.cpu() for name, tensor in encoder.tensors.items()}
        return Part(tree, own, encoder.shared)


def take(
    objects: Mapping[str, Any],
    lent: Mapping[Module, Mapping[str, Tensor]] | None = None,
) -> Snapshot:
    """The snapshot of these objects alone, without a run.

    A module that holds another module's weights for a while is saved with its own, from `lent`.

    Raises:
        OSError: Memory has run out.
        TypeError: A value cannot be saved.
    """
    files, saved = dict[str, Encoder](), dict[str, Any]()
    for name, each in objects.items():
        is_file = isinstance(each, Module) and is_file_name(name)
        file = name if is_file else TRAIN
        # An error names the object by the file's name, or else by the path in the file.
        encoder = files.setdefault(file, Encoder(name) if is_file else Encoder(once=True))
        with needing_memory(f"take the state_dict() of {name!r}"):
            if isinstance(each, Optimizer):
                content = encoder.encode(_state_of(each), name, OF_OPTIMIZERS)
            else:
                own = weights(each, lent) if isinstance(each, Module) else _state_of(each)
                content = encoder.encode(own, "" if is_file else name)
        saved[name] = {"file": file, "content": content}
        if isinstance(each, Optimizer):
            saved[name]["parameters"] = parameter_names(each, objects)
    tensors = {file: encoder.tensors for file, encoder in files.items()}
    return Snapshot({TREE: {"objects": saved}}, tensors)


def _state_of(thing: Any) -> Any:
    """A state; that of an optimizer without the settings that a script gives anew."""
    try:
        state = thing.state_dict()
    except KeyError as error:
        if not isinstance(thing, Optimizer) or error.args[0] not in map(id, thing.state):
            raise
        raise ValueError(
            f"the {type(thing).__name__} has a state of a parameter that is in none of its groups, "
            "since the run has replaced it: move it to the new one, optimizer.state[new] = "
            "optimizer.state.pop(old), or drop it, optimizer.state.pop(old)"
        ) from error
    if not isinstance(thing, Optimizer) or not has_groups(state):
        return state
    groups = state["param_groups"]
    plain = [{k: g[k] for k in g if not isinstance(g[k], OF_SCRIPT)} for g in groups]
    return {**state, "param_groups": plain}


def _is_mapping(content: Any) -> bool:
    """True for the encoded state of an object that a resume takes."""
    return isinstance(content, dict) and all(
        key in OF_MAPPINGS or not key.startswith("!") for key in content
    )


def is_file_name(name: str) -> bool:
    """True for the name of an object that its file can have; other objects are in one file."""
    if name == TRAIN or name.endswith(FROZEN) or OF_RANKS.fullmatch(name):
        return False
    return len(name) <= 200 and PLAIN_NAME.fullmatch(name) is not None


def _same_on_all_ranks(objects: Mapping[str, Any]) -> Callable[[str, str], bool]:
    """Tells by file and name which tensors are: parameters, and what optimizers keep."""
    weights = {
        name: named_parameters_of(each).keys()
        for name, each in objects.items()
        if isinstance(each, Module) and is_file_name(name)
    }
    prefixes = tuple(f"{name}." for name, each in objects.items() if isinstance(each, Optimizer))
    return lambda file, name: (
        name.startswith(prefixes) if file == TRAIN else name in weights.get(file, ())
    )


def _hold_shards(objects: Mapping[str, Any]) -> bool:
    tensors = list[Any]()
    for each in objects.values():
        if isinstance(each, Module):
            tensors += [*each.parameters(), *each.buffers()]
        elif isinstance(each, Optimizer):
            tensors += [tensor for group in each.param_groups for tensor in group["params"]]
    return any(map(is_sharded, tensors))


def save_alone(
    state: State[Any, Any],
    directory: Path,
    made: Mapping[str, Any],
    reason: str,
    numbers: Mapping[str, float],
) -> Saved:
    """Save this rank's run, what it has `made`, each in a file, and `numbers` in the manifest."""
    part, own = take_part(state), rank_file(0)
    files, objects = {own: part.tensors}, dict[str, Any]()
    for name, each in made.items():
        encoder = Encoder(name)
        objects[name] = {"file": name, "content": encoder.encode(each)}
        files[name] = encoder.tensors
    trees = {TREE: {"objects": objects}, f"{own}.json": {"run": part.tree, "buffers": {}}}
    manifest = manifest_of(state, reason, dict(numbers))
    return Directory(directory).write(Snapshot(trees, files).streamed(), manifest)


def manifest_of(
    state: State[Any, Any], reason: str, metrics: dict[str, float], **more: Any
) -> Manifest:
    """The manifest of a save at this moment, without its number and its files."""
    return Manifest(
        iteration=state.iteration,
        epoch=state.epoch - state.in_epoch,
        reason=reason,
        metrics=metrics,
        versions=installed_versions(),
        time=round(time.time(), 3),
        **more,
    )


def resume_alone(state: State[Any, Any], saved: Saved) -> None:
    """Resume a run that `save_alone` has saved: for handlers of LOADING."""
    with reading(saved.path):
        part, tensors = read_part(saved, 0)
        run, _ = SavedRun.of_part(part, tensors)
    state.load_state_dict(run)


WIPE_ON_FORK = 18
"""Linux's MADV_WIPEONFORK: a forked process finds zeros in this memory.

If workers shared the pages, the next save would first copy each of them. If the pages were absent
in workers (MADV_DONTFORK), a worker that frees this object would free what lies at the same address
by then.
"""

WITHOUT_A_COPY = (
    ". With background=False nothing is copied: the run waits while its own memory is written"
)


class Staging:
    """A copy of a run's snapshot in memory that each save uses again."""

    def __init__(self) -> None:
        self._buffers: dict[str, FileBuffer] = {}

    def copy(self, snapshot: Snapshot) -> dict[str, Payload]:
        """The files of a copy; the run may change afterwards, and the next copy replaces it.

        Raises:
            OSError: Memory has run out; all of it that earlier copies took is given back.
        """
        wanted = snapshot.tensors
        self._buffers = {
            file: buffer
            for file, buffer in self._buffers.items()
            if file in wanted and buffer.fits(wanted[file])
        }
        try:
            for file, tensors in wanted.items():
                size = sum(tensor.nbytes for tensor in tensors.values())
                with needing_memory(f"copy {file}{TENSORS}, {size:,} bytes", WITHOUT_A_COPY):
                    if file not in self._buffers:
                        self._buffers[file] = FileBuffer(tensors)
                    self._buffers[file].fill(tensors)
        except BaseException:
            self._buffers.clear()
            raise
        files = {f"{file}{TENSORS}": Payload.of(b.content) for file, b in self._buffers.items()}
        return files | snapshot.plain()


class FileBuffer:
    """The bytes of a `.safetensors` file in memory, with a view of each tensor's place.

    A buffer is made once and takes the values of like tensors again and again.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._form = _form(tensors)
        header, places = header_of(tensors)
        size = len(header) + sum(tensor.nbytes for tensor in tensors.values())
        memory = _memory(size, pinned=any(tensor.is_cuda for tensor in tensors.values()))
        memory[: len(header)] = torch.frombuffer(bytearray(header), dtype=torch.uint8)
        self._views = {
            name: memory[place : place + tensors[name].nbytes]
            .view(tensors[name].dtype)
            .view(tensors[name].shape)
            for name, place in places.items()
        }
        self.content: memoryview[int] = memory.numpy().data

    def fits(self, tensors: Mapping[str, Tensor]) -> bool:
        """True if these tensors have the names, types and shapes that the file is laid out for."""
        return _form(tensors) == self._form

    def fill(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the values of all tensors; when this returns, they may change."""
        for name, view in self._views.items():
            view.copy_(tensors[name], non_blocking=tensors[name].is_cuda)
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()  # on which the copies are


def _form(tensors: Mapping[str, Tensor]) -> list[object]:
    return [(name, each.dtype, each.shape, each.is_cuda) for name, each in tensors.items()]


def _memory(size: int, pinned: bool) -> Tensor:
    if pinned:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    kind = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = mmap.mmap(-1, size, **kind)
    if sys.platform == "linux":
        with suppress(OSError):  # a kernel from before 4.14
            memory.madvise(WIPE_ON_FORK)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # each copy is a tenth faster, the first one slower
    return torch.frombuffer(memory, dtype=torch.uint8)

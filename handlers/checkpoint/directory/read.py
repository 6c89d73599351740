"""One checkpoint on the disk: its manifest, whether it is whole, and what it holds.

Importing this file imports no torch, which takes longer than looking at a directory.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files import (
    LARGEST_TEXT,
    Tables,
    appearing,
    budget,
    make_directory,
    refuse_odd,
    regular,
    size_of,
    tree_of,
)
from ..format import (
    MANIFEST,
    PIECES,
    TENSORS,
    TRAIN,
    TREE,
    BrokenCheckpoint,
    Manifest,
    Table,
    TensorInfo,
    decode,
    pieces_of_rank,
    rank_file,
    reading,
    references,
    table_of_tree,
    tensors_in,
)
from .files import CHUNK, checksums_of, foreign_files, write_file
from .tensor_files import PieceFile, RankFiles, TensorFile, TensorSource, payload_of

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger("camshaft")

NAME = re.compile(r"iteration-\d{10,}(\.\d+)?", re.ASCII)
OF_RANK = re.compile(r"rank-\d{5,}\.safetensors", re.ASCII)
SHOWN = 20
"""Foreign files that a message names."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint on the disk, as `checkpoints(directory)` finds it."""

    path: Path
    manifest: Manifest = field(repr=False)
    """When and why it was written, the metrics at that time, and the checksums of its files."""

    def state_dict(self, object: str) -> Any:
        """The state of one of the run's objects, such as `"model"`, on the CPU.

        A model's state has the plain names of its weights, however the model was wrapped:
        `model.load_state_dict(saved.state_dict("model"))`. The files of the state are verified.

        Args:
            object: The name among the engine's objects.

        Raises:
            BrokenCheckpoint: A file is missing or damaged.
            ValueError: The run had no object of that name.
        """
        return read_objects(self, object)[object]

    def export(self, file: str | Path, object: str | None = None) -> Path:
        """Write one file that plain torch reads, with `torch.load(file, weights_only=True)`.

        The file holds a dict: the state of each of the run's objects by its name, `"iteration"`,
        `"step"`, `"epoch"` and `"metrics"`. With `object="model"` it holds that state alone, so
        that `model.load_state_dict(torch.load(file, weights_only=True))` works. NumPy's arrays
        become tensors and its numbers Python's. It is in memory before it is written.

        If the name ends with `.safetensors`, it is such a file of one object's tensors, of which
        one after the other is in memory.

        Args:
            file: Where to write; an existing file is replaced at once.
            object: The name of the one object to export; by default all, or `"model"` for
                `.safetensors`.

        Raises:
            BrokenCheckpoint: A file is missing or damaged.
            OSError: The file cannot be written.
            TypeError: A state holds a value that such a file cannot.
            ValueError: The run had no object of that name, or an object has the name of a number.
        """
        if Path(file).suffix == TENSORS:
            return write_tensors(self, Path(file), object or "model")
        from .pt_export import write_pt  # it imports torch

        return write_pt(read_objects(self, object), self.manifest, Path(file), object)


def saved_at(path: Path, name: str | None = None) -> Saved:
    """The checkpoint at `path`, or that is to be called `name`; only its manifest is read.

    Raises:
        BrokenCheckpoint: The manifest is missing, damaged, or that of another checkpoint.
    """
    with reading(path, MANIFEST):
        if path.is_symlink():
            raise BrokenCheckpoint("it is a link to a directory; name the directory itself", path)
        with regular(path / MANIFEST) as file:
            text = file.read(budget.LARGEST_MANIFEST + 1)
        try:
            if len(text) > budget.LARGEST_MANIFEST:
                raise ValueError(f"it has more than {budget.LARGEST_MANIFEST:,} bytes")
            manifest = Manifest.of_json(text)
        except ValueError as error:
            raise ValueError(f"cannot be used: {error}") from error
        name = path.name if name is None else name
        if NAME.fullmatch(name) and int(name[10:].split(".")[0]) != manifest.iteration:
            raise ValueError(f"is of iteration {manifest.iteration}: the directory was renamed")
    return Saved(path, manifest)


def names_in(directory: Path) -> list[str]:
    """The names of the checkpoints in a directory, in their order."""
    found = os.listdir(directory) if directory.is_dir() else []
    return sorted(filter(NAME.fullmatch, found))


def scan(directory: Path, names: Iterable[str] | None = None) -> tuple[list[Saved], dict[str, str]]:
    """The checkpoints in the order of writing; and the broken ones by name, with the reasons.

    Only manifests are read, by default those of all checkpoints in the directory.
    """
    found: list[Saved] = []
    broken: dict[str, str] = {}
    for name in names_in(directory) if names is None else names:
        try:
            found.append(saved_at(directory / name))
        except BrokenCheckpoint as error:
            broken[name] = error.reason
    return sorted(found, key=lambda each: each.manifest.number), broken


def compare_sizes(saved: Saved) -> None:
    """Check that every file is there and has its size, which takes no time.

    Raises:
        BrokenCheckpoint: A file is missing, or has another size.
    """
    if TREE not in saved.manifest.files:
        raise BrokenCheckpoint(f"{MANIFEST} does not list {TREE}", saved.path)
    for name, expected in saved.manifest.files.items():
        with reading(saved.path, name):
            size = size_of(saved.path / name)
            if size != expected.size:
                raise ValueError(f"has {size} bytes and should have {expected.size}")
            if len(expected.crc32) != -(-size // CHUNK):
                raise ValueError(f"has {len(expected.crc32)} checksums, which do not fit its size")


def verify_files(saved: Saved, files: Iterable[str] | None = None) -> None:
    """Read every file, or only those named, and compare sizes and checksums.

    Raises:
        BrokenCheckpoint: A file is missing, unreadable or damaged.
    """
    compare_sizes(saved)
    for name in saved.manifest.files if files is None else files:
        with reading(saved.path, name):
            if checksums_of(saved.path / name) != saved.manifest.files[name]:
                raise ValueError(f"is damaged: its checksum is not the one in {MANIFEST}")
    if files is None and PIECES in saved.manifest.files:
        check_pieces(saved)
    if foreign := foreign_files(saved.path, {MANIFEST, *saved.manifest.files}):
        more = f" ... ({len(foreign)} in all)" if len(foreign) > SHOWN else ""
        told = f"{foreign[:SHOWN]}{more}"
        logger.warning("%s holds files that no checkpoint has: %s", saved.path, told)


def read_checkpoint(saved: Saved) -> tuple[Any, dict[str, TensorSource]]:
    """The tree of plain values, and the tensors by file and name, of a verified checkpoint.

    Raises:
        BrokenCheckpoint: A file has the right checksum and a wrong format.
    """
    compare_sizes(saved)
    tree = tree_in(saved)
    tensors: dict[str, TensorSource] = {}
    for name in saved.manifest.files:
        if name.endswith(TENSORS) and not OF_RANK.fullmatch(name):
            with reading(saved.path, name):
                tensors[name.removesuffix(TENSORS)] = TensorFile(saved.path / name)
    return tree, tensors | piece_files(saved)


def infos_in(saved: Saved) -> dict[str, dict[str, TensorInfo]]:
    """The types and shapes of all tensors, by the file in which a checkpoint of one rank has them.

    Raises:
        BrokenCheckpoint: A file has the right checksum and a wrong format.
    """
    found = {}
    for name in saved.manifest.files:
        if name.endswith(TENSORS) and not OF_RANK.fullmatch(name):
            with reading(saved.path, name):
                found[name.removesuffix(TENSORS)] = tensors_in(saved.path / name)
    table = table_in(saved)
    return found | {file: {n: each.info for n, each in own.items()} for file, own in table.items()}


def part_tree(saved: Saved, tree: Any) -> Any:
    """What the first rank has saved of the run for itself; None for an export."""
    if has_parts(saved):
        return read_part(saved, 0)[0]["run"]
    return tree["run"][0] if tree["run"] else None


def piece_files(saved: Saved) -> dict[str, TensorSource]:
    """The tensors that are in pieces in the files of ranks, by the file that they would be in."""
    files = RankFiles(saved.path)
    return {file: PieceFile(file, grids, files) for file, grids in table_in(saved).items()}


def read_part(saved: Saved, rank: int) -> tuple[Any, TensorSource | dict[str, Tensor]]:
    """What a rank has saved of the run for itself, and its tensors; of a verified checkpoint.

    Raises:
        BrokenCheckpoint: A file has the right checksum and a wrong format.
    """
    own = rank_file(rank)
    part = _tree_at(saved, f"{own}.json")
    if (name := f"{own}{TENSORS}") not in saved.manifest.files:
        return part, {}
    with reading(saved.path, name):
        return part, TensorFile(saved.path / name)


def has_parts(saved: Saved) -> bool:
    """True if each rank has written files of its own."""
    return f"{rank_file(0)}.json" in saved.manifest.files


def table_in(saved: Saved) -> Table:
    """How tensors are cut into pieces; empty if none is.

    Raises:
        BrokenCheckpoint: The table is beyond a limit, or no run writes such a table.
    """
    if PIECES not in saved.manifest.files:
        return {}
    tree = _tree_at(saved, PIECES)
    with reading(saved.path, PIECES):
        return table_of_tree(tree, saved.manifest.world_size)


def check_pieces(saved: Saved) -> None:
    """Check that each rank's file holds the pieces that the table says; only headers are read.

    Raises:
        BrokenCheckpoint: A piece is missing, or has another type or shape.
    """
    table = table_in(saved)
    owners = {each.owners for grids in table.values() for each in grids.values()}
    for rank in sorted({rank for each in owners for rank in each}):
        name = f"{rank_file(rank)}{TENSORS}"
        if name not in saved.manifest.files:
            raise BrokenCheckpoint(f"{PIECES} names {name}, which is not there", saved.path)
        with reading(saved.path, name):
            refuse_other_pieces(tensors_in(saved.path / name), table, rank)


def refuse_other_pieces(found: Mapping[str, TensorInfo], table: Table, rank: int) -> None:
    """Refuse a rank's file without a piece that the table says, or with another one."""
    meant = pieces_of_rank(table, rank)
    if odd := [each for each, info in meant.items() if found.get(each) != info]:
        raise ValueError(f"does not hold the pieces that {PIECES} names: {odd[:3]}")


def write_tensors(saved: Saved, file: Path, object: str) -> Path:
    """Write the tensors of an object as one file, without holding more than one of them.

    Raises:
        BrokenCheckpoint: A file is missing or damaged.
        OSError: The file cannot be written.
        TypeError: The object's state is more than tensors by name.
        ValueError: The run had no object of that name.
    """
    each = objects_in(saved, object)[object]
    with reading(saved.path, TREE):
        content = each["content"]
        source = sources(saved, {each["file"]})[each["file"]]
        names = {
            name: value["!tensor"]
            for name, value in content.items()
            if isinstance(value, dict) and value.keys() == {"!tensor"}
        }
    if odd := [name for name in content if name not in names]:
        raise TypeError(
            f"the state of {object!r} is more than tensors by name, such as {odd[0]!r}: export it "
            "to a file that ends with .pt"
        )
    refuse_odd(file)
    make_directory(file.absolute().parent)
    with appearing(file) as temporary, ThreadPoolExecutor(1) as helper:
        write_file(temporary, payload_of(source, names), helper)
    return file


def objects_in(saved: Saved, object: str | None) -> dict[str, Any]:
    """What the tree says of the run's objects, or of one."""
    verify_files(saved, [TREE])
    with reading(saved.path, TREE):
        objects = dict(tree_in(saved)["objects"])
    if object is None:
        return objects
    if object not in objects:
        listed = ", ".join(map(repr, objects)) or "none"
        raise ValueError(f"{saved.path} holds no object {object!r}; its objects are: {listed}")
    return {object: objects[object]}


def read_objects(saved: Saved, object: str | None = None) -> dict[str, Any]:
    """The states of the run's objects, or of one, by name; the files they need are verified.

    Raises:
        BrokenCheckpoint: A file is missing or damaged.
        ValueError: The run had no object of that name.
    """
    chosen = objects_in(saved, object)
    with reading(saved.path, TREE):
        tensors = sources(saved, {each["file"] for each in chosen.values()})
        tables = Tables()
        return {
            name: decode(each["content"], tensors[each["file"]], tables)
            for name, each in chosen.items()
        }


def sources(saved: Saved, files: Collection[str]) -> dict[str, TensorSource]:
    """The tensors of the files of some objects; what holds them is verified.

    Raises:
        BrokenCheckpoint: A file is missing or damaged.
    """
    if PIECES not in saved.manifest.files:
        verify_files(saved, [f"{file}{TENSORS}" for file in files])
        return {file: TensorFile(saved.path / f"{file}{TENSORS}") for file in files}
    verify_files(saved, [PIECES])
    chosen = {file: grids for file, grids in table_in(saved).items() if file in files}
    owners = {rank for grids in chosen.values() for each in grids.values() for rank in each.owners}
    verify_files(saved, [f"{rank_file(rank)}{TENSORS}" for rank in sorted(owners)])
    check_pieces(saved)
    held = RankFiles(saved.path)
    return {file: PieceFile(file, chosen.get(file, {}), held) for file in files}


def tree_in(saved: Saved) -> Any:
    """The tree of plain values of a checkpoint.

    Raises:
        BrokenCheckpoint: The tree is beyond a limit, or no run writes such a tree.
    """
    tree = _tree_at(saved, TREE)
    with reading(saved.path, TREE):
        _refuse_repeated(tree)
    return tree


def _tree_at(saved: Saved, name: str) -> Any:
    with reading(saved.path, name), regular(saved.path / name) as file:
        size = os.fstat(file.fileno()).st_size  # read() takes memory for all it is asked for
        return tree_of(file.read(min(size, LARGEST_TEXT) + 1))


def _refuse_repeated(tree: Any) -> None:
    """Refuse a tensor of two owners, which no run writes, since each owner makes a copy of it."""
    owners = dict[tuple[str, str], int]()
    parts = [(TRAIN, part) for part in tree.get("run", ())]
    parts += [(each["file"], each["content"]) for each in tree.get("objects", {}).values()]
    for number, (file, part) in enumerate(parts):
        for name in references(part):
            if owners.setdefault((file, name), number) != number:
                raise ValueError(f"names the tensor {name!r} twice, for two owners")

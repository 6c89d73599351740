"""One checkpoint on the disk, and what it holds: the run's values, tensors, and objects.

Importing this file imports no torch, which takes longer than looking at a directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files import appearing, make_directory, refuse_odd
from ..format import TENSORS, TREE, decode, reading
from .contents import (
    CheckpointFiles,
    StoredTensor,
    manifest_at,
    payload_of,
    tensors_by_name,
    tree_in,
)
from .files import write_file
from .verify import compare_sizes, verify_files, verify_objects

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Saved(CheckpointFiles):
    """A checkpoint on the disk, as `checkpoints(directory)` finds it."""

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
    """The checkpoint at `path`, whose name is to be `name`; only its manifest is read.

    Raises:
        BrokenCheckpoint: The manifest is missing, damaged, or that of another checkpoint.
    """
    return Saved(path, manifest_at(path, name))


def files_on_disk(found: Iterable[Saved]) -> dict[object, int]:
    """The files of some checkpoints, with their sizes; a file that several share is listed once."""
    files = dict[object, int]()
    for saved in found:
        for name, sums in saved.manifest.files.items():
            place = saved.path / name
            with suppress(OSError):
                status = place.lstat()
                files[(status.st_dev, status.st_ino)] = sums.size
    return files


def read_checkpoint(
    saved: CheckpointFiles, in_memory: Mapping[str, Mapping[str, Tensor]] | None = None
) -> tuple[Any, dict[str, Mapping[str, StoredTensor | Tensor]]]:
    """The tree of plain values, and the tensors by file and name, of a verified checkpoint.

    The tensors of files that are `in_memory` are taken from there.

    Raises:
        BrokenCheckpoint: A file has the right checksum and a wrong format.
    """
    compare_sizes(saved)
    return tree_in(saved), {**tensors_by_name(saved, but=in_memory or ()), **(in_memory or {})}


def read_objects(saved: CheckpointFiles, object: str | None = None) -> dict[str, Any]:
    """The states of the run's objects, or of one, by name; verifies the files that hold them.

    Raises:
        BrokenCheckpoint: A file is missing or damaged.
        ValueError: The run had no object of that name.
    """
    chosen = objects_in(saved, object)
    with reading(saved.path, TREE):
        tensors = _verified_tensors(saved, chosen)
        return {
            name: decode(each["content"], tensors.get(each["file"], {}))
            for name, each in chosen.items()
        }


def read_weights(saved: CheckpointFiles, object: str, *, is_verified: bool) -> Mapping[str, Any]:
    """The state of an object; its tensors stay in their files.

    The files are verified, unless that is done already.

    Raises:
        BrokenCheckpoint: A file is missing or damaged.
        ValueError: The run had no object of that name.
    """
    chosen = objects_in(saved, object)
    content, file = chosen[object]["content"], chosen[object]["file"]
    with reading(saved.path, TREE):
        verified = (
            tensors_by_name(saved, {file}) if is_verified else _verified_tensors(saved, chosen)
        )
        own = verified.get(file, {})
        state: Mapping[str, Any] = _tensors(content, own) or decode(content, own)
        return state


def write_tensors(saved: CheckpointFiles, file: Path, object: str) -> Path:
    """Write the tensors of an object as one file, with one tensor in memory at a time.

    Raises:
        BrokenCheckpoint: A file is missing or damaged.
        OSError: The file cannot be written.
        TypeError: The object's state is more than tensors by name.
        ValueError: The run had no object of that name.
    """
    chosen = objects_in(saved, object)
    with reading(saved.path, TREE):
        content, own = chosen[object]["content"], _verified_tensors(saved, chosen)
        tensors = _tensors(content, own.get(chosen[object]["file"], {}))
    if odd := [name for name in content if name not in tensors]:
        raise TypeError(
            f"the state of {object!r} is more than tensors by name, such as {odd[0]!r}: export it "
            "to a file that ends with .pt"
        )
    refuse_odd(file)
    make_directory(file.absolute().parent)
    with appearing(file) as temporary, ThreadPoolExecutor(1) as helper:
        write_file(temporary, payload_of(tensors), helper)
    return file


def objects_in(saved: CheckpointFiles, object: str | None) -> dict[str, Any]:
    """The entries of the run's objects in the tree, or the entry of one object.

    Raises:
        BrokenCheckpoint: The tree is missing or damaged.
        ValueError: The run had no object of that name.
    """
    verify_files(saved, [TREE])
    with reading(saved.path, TREE):
        objects = dict(tree_in(saved)["objects"])
    if object is None:
        return objects
    if object not in objects:
        listed = ", ".join(map(repr, objects)) or "none"
        raise ValueError(f"{saved.path} holds no object {object!r}; its objects are: {listed}")
    return {object: objects[object]}


def _verified_tensors(
    saved: CheckpointFiles, objects: Mapping[str, Any]
) -> dict[str, dict[str, StoredTensor]]:
    files = {each["file"] for each in objects.values()}
    verify_objects(saved, files)
    return tensors_by_name(saved, files)


def _tensors(content: Any, own: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors among the values of an object, under the names that they have there."""
    names = {
        name: value["!tensor"]
        for name, value in content.items()
        if isinstance(value, dict) and value.keys() == {"!tensor"}
    }
    if odd := [inside for inside in names.values() if inside not in own]:
        raise ValueError(f"names tensors that are not there: {odd[:3]}")
    return {name: own[inside] for name, inside in names.items()}

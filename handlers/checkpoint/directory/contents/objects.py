"""The states of a run's objects in a checkpoint: read, or written as a file of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....files import Tables, appearing, make_directory, refuse_odd
from ...format import TREE, TensorInfo, decode, reading
from ..files import write_file
from ..tensor_files import TensorSource, payload_of
from .checkpoint_files import CheckpointFiles
from .tensors import sources
from .trees import tree_in
from .verify import verify_files

if TYPE_CHECKING:
    from torch import Tensor


def read_objects(saved: CheckpointFiles, object: str | None = None) -> dict[str, Any]:
    """The states of the run's objects, or of one, by name; verifies the files that hold them.

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


def write_tensors(saved: CheckpointFiles, file: Path, object: str) -> Path:
    """Write the tensors of an object as one file, with one tensor in memory at a time.

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
        names = _tensors(content)
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


def read_weights(saved: CheckpointFiles, object: str, *, is_verified: bool) -> Mapping[str, Any]:
    """The state of an object; its tensors stay in their files until they are looked up.

    The files are verified, unless that is done already.

    Raises:
        BrokenCheckpoint: A file is missing or damaged.
        ValueError: The run had no object of that name.
    """
    each = objects_in(saved, object)[object]
    with reading(saved.path, TREE):
        source = sources(saved, {each["file"]}, is_verified=is_verified)[each["file"]]
        if names := _tensors(each["content"]):
            return Renamed(source, names, saved.path)
        state: Mapping[str, Any] = decode(each["content"], source)
        return state


class Renamed(TensorSource):
    """Tensors of a checkpoint under other names."""

    def __init__(self, source: TensorSource, names: Mapping[str, str], path: Path) -> None:
        self._source, self._names, self._path = source, names, path
        if odd := [inside for inside in names.values() if inside not in source]:
            raise ValueError(f"names tensors that are not there: {odd[:3]}")

    def __getitem__(self, name: str) -> Tensor:
        """The whole tensor, as a new one."""
        with reading(self._path):
            return self._source[self._names[name]]

    def __contains__(self, name: object) -> bool:
        """True if there is a tensor of this name; the tensor is not read."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def info(self, name: str) -> TensorInfo:
        """The type and the shape of a tensor; its values are not read."""
        return self._source.info(self._names[name])

    def fill(self, name: str, begin: tuple[int, ...], into: Tensor) -> None:
        """Fill `into` with the part of a tensor that begins at these indices."""
        with reading(self._path):
            self._source.fill(self._names[name], begin, into)


def _tensors(content: Any) -> dict[str, str]:
    """The tensors among these values: for each name, the name that the file has for it."""
    return {
        name: value["!tensor"]
        for name, value in content.items()
        if isinstance(value, dict) and value.keys() == {"!tensor"}
    }


def objects_in(saved: CheckpointFiles, object: str | None) -> dict[str, Any]:
    """The entries of the run's objects in the tree, or the entry of one object."""
    verify_files(saved, [TREE])
    with reading(saved.path, TREE):
        objects = dict(tree_in(saved)["objects"])
    if object is None:
        return objects
    if object not in objects:
        listed = ", ".join(map(repr, objects)) or "none"
        raise ValueError(f"{saved.path} holds no object {object!r}; its objects are: {listed}")
    return {object: objects[object]}

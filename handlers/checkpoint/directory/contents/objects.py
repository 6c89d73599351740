"""The states of a run's objects in a checkpoint: read, or written as a file of their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ....files import Tables, appearing, make_directory, refuse_odd
from ...format import TREE, decode, reading
from ..files import write_file
from ..tensor_files import payload_of
from .checkpoint_files import CheckpointFiles
from .tensors import sources
from .trees import tree_in
from .verify import verify_files


def read_objects(saved: CheckpointFiles, object: str | None = None) -> dict[str, Any]:
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


def write_tensors(saved: CheckpointFiles, file: Path, object: str) -> Path:
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


def objects_in(saved: CheckpointFiles, object: str | None) -> dict[str, Any]:
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

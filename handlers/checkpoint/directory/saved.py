"""One checkpoint on the disk, and the states of the run's objects in it: read, and exported.

Functions raise BrokenCheckpoint where a file is missing, damaged, or such that no run writes it.
Importing this file imports no torch, which takes longer than looking at a directory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ....engine import listed
from ...files import appearing, created, make_directory, refuse_odd
from ..format import TENSORS, TREE, BrokenCheckpoint, Manifest, decode, reading, tree_in
from .contents import StoredTensor, payload_of, tensors_by_name
from .verify import compare_sizes, foreign_in, verify_files, verify_objects


@dataclass(frozen=True)
class Saved:
    """A checkpoint on the disk, as `checkpoints(directory)` finds it."""

    path: Path
    manifest: Manifest = field(repr=False)
    """When and why it was written, the metrics at that time, and the checksums of its files."""

    @property
    def foreign(self) -> list[str]:
        """The names of files in its directory that do not belong to it."""
        return foreign_in(self)

    def problem(self, *, thoroughly: bool = True) -> str | None:
        """Why it is broken; None if it is whole.

        Args:
            thoroughly: True to read every file; otherwise only sizes are compared.
        """
        try:
            (verify_files if thoroughly else compare_sizes)(self)
        except BrokenCheckpoint as error:
            return error.reason
        return None

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

        A `.pt` file holds a dict: the state of each of the run's objects by its name,
        `"iteration"`, `"step"`, `"epoch"` and `"metrics"`. With `object="model"` it holds that
        state alone, so that `model.load_state_dict(torch.load(file, weights_only=True))` works.
        NumPy's arrays become tensors and its numbers Python's. It is in memory before it is
        written.

        If the name ends with `.safetensors`, it is such a file of one object's tensors, of which
        one after the other is in memory.

        `export_dcp` writes a directory for `torch.distributed.checkpoint.load`.

        Args:
            file: Where to write, `.pt` or `.safetensors`; an existing file is replaced at once.
            object: The name of the one object to export; by default all, or `"model"` for
                `.safetensors`.

        Raises:
            BrokenCheckpoint: A file is missing or damaged.
            OSError: The file cannot be written.
            TypeError: A state holds a value that such a file cannot.
            ValueError: The run had no object of that name, or an object has the name of a number,
                or the name of the file ends otherwise.
        """
        file = Path(file)
        if file.suffix not in (".pt", TENSORS):
            raise ValueError(
                f"cannot export to {file}: write a name that ends with .pt, for torch.load, or "
                f"with {TENSORS}, or write a directory by export_dcp. For other formats, such as "
                "ONNX, load such a file into the model and let torch convert that"
            )
        if file.suffix == TENSORS:
            payload = payload_of(own_tensors(self, object or "model"))
            with _new_file(file) as opened:
                opened.writelines(payload.pieces())
        else:
            from .pt_export import write_pt  # it imports torch

            content = content_of_file(self, object)
            with _new_file(file) as opened:
                write_pt(content, opened)
        return file


def encoded_objects(
    saved: Saved, object: str | None = None, *, is_verified: bool = False
) -> dict[str, tuple[Any, dict[str, StoredTensor]]]:
    """By name: the encoded state of each of the run's objects, or of one, and its tensors.

    The files are verified, unless that is done already.

    Raises:
        ValueError: The run had no object of that name.
    """
    if not is_verified:
        verify_files(saved, [TREE])
    with reading(saved.path, TREE):
        objects = dict(tree_in(saved.path)["objects"])
    if object is not None and object not in objects:
        known = listed(objects)
        raise ValueError(f"{saved.path} holds no object {object!r}; its objects are: {known}")
    with reading(saved.path, TREE):
        chosen = objects if object is None else {object: objects[object]}
        files = {each["file"] for each in chosen.values()}
        if not is_verified:
            verify_objects(saved, files)
        tensors = tensors_by_name(saved, files)
        return {
            name: (each["content"], tensors.get(each["file"], {})) for name, each in chosen.items()
        }


def read_objects(saved: Saved, object: str | None = None) -> dict[str, Any]:
    """The states of the run's objects, or of one, by name; see `encoded_objects`."""
    found = encoded_objects(saved, object)
    with reading(saved.path, TREE):
        return {name: decode(*each) for name, each in found.items()}


def content_of_file(
    saved: Saved, object: str | None, change: Callable[[str, Any, Any], Any] | None = None
) -> Any:
    """The content of a file with the states of all objects, or of one: see `Saved.export`.

    `change` gets the name and state of an optimizer, and the names of its parameters, and returns
    what the file holds in the place of the state.
    """
    from .pt_export import pt_content  # it imports torch

    states = read_objects(saved, object)
    if change is not None:
        for name, each in tree_in(saved.path)["objects"].items():
            if name in states and each.get("parameters"):
                states[name] = change(name, states[name], each["parameters"])
    return pt_content(states, saved.manifest, object)


def read_weights(saved: Saved, object: str, *, is_verified: bool) -> Mapping[str, Any]:
    """The state of an object, whose tensors stay in their files; see `encoded_objects`."""
    content, own = encoded_objects(saved, object, is_verified=is_verified)[object]
    with reading(saved.path, TREE):
        state: Mapping[str, Any] = _tensors(content, own) or decode(content, own)
        return state


def own_tensors(saved: Saved, object: str) -> dict[str, StoredTensor]:
    """The tensors of an object whose state has nothing else; see `encoded_objects`."""
    content, own = encoded_objects(saved, object)[object]
    with reading(saved.path, TREE):
        tensors = _tensors(content, own)
    if odd := [name for name in content if name not in tensors]:
        raise TypeError(
            f"the state of {object!r} is more than tensors by name, such as {odd[0]!r}: export it "
            "to a file that ends with .pt"
        )
    return tensors


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


@contextmanager
def _new_file(path: Path) -> Generator[BinaryIO, None, None]:
    """A file of the user's that appears when it is whole."""
    with telling_new(path):
        refuse_odd(path)
        make_directory(path.absolute().parent)
        with appearing(path) as temporary, created(temporary) as file:
            yield file


@contextmanager
def telling_new(path: Path) -> Generator[None, None, None]:
    """Name a file or directory of the user's that cannot be written."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch raises a RuntimeError for a full disk
        raise OSError(f"could not write {path}: {error}. Nothing of it is left") from error

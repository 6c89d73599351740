"""A directory of checkpoints: writing them so that they last, finding and reading them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from .codec import decode
from .files import appearing, contents_of, make_directory, sweep, synchronise, vanish
from .manifest import Contents, Manifest
from .snapshot import Snapshot

logger = logging.getLogger("camshaft")

NAME = re.compile(r"iteration-\d{10,}(\.\d+)?")
MANIFEST, TREE, LATEST, TENSORS = "manifest.json", "state.json", "LATEST", ".safetensors"


@dataclass(frozen=True)
class Saved:
    """A checkpoint on the disk, as `checkpoints(directory)` finds it."""

    path: Path
    manifest: Manifest = field(repr=False)
    """When it was written, why, how well the run did, and what its files should hold."""

    def state_dict(self, name: str) -> Any:
        """The state of one of the run's objects, such as `"model"`, on the CPU.

        A model's is under the plain names of its weights, however it was wrapped:
        `model.load_state_dict(saved.state_dict("model"))`. The files it lies in are verified.

        Args:
            name: Its name among the engine's objects.

        Raises:
            OSError: A file is missing or cannot be read.
            ValueError: There was no object of that name, or a file is not what was written.
        """
        return read_objects(self, name)[name]

    def export(self, file: str | Path, only: str | None = None) -> Path:
        """Write one file that plain torch reads, with `torch.load(file, weights_only=True)`.

        It holds a dict: the state of each of the run's objects by its name, `"iteration"`,
        `"step"`, `"epoch"` and `"metrics"`. With `only="model"` it holds that state alone, so
        that `model.load_state_dict(torch.load(file, weights_only=True))` works. NumPy's arrays
        become tensors and its numbers Python's.

        Args:
            file: Where to write it; what is there is replaced, at once.
            only: The name of the one object that is meant.

        Raises:
            OSError: A file cannot be read or written.
            TypeError: It holds something that such a file cannot.
            ValueError: There was no object of that name, or it cannot be told from a number, or a
                file is not what was written.
        """
        from .portable import export

        return export(self, Path(file), only)


def scan(directory: Path) -> tuple[list[Saved], dict[str, str]]:
    """The checkpoints in order of writing; and what looks like one but is not, and why."""
    found: list[Saved] = []
    broken: dict[str, str] = {}
    names = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
    for name in filter(NAME.fullmatch, names):
        try:
            found.append(look_at(directory / name))
        except (OSError, ValueError) as error:
            broken[name] = str(error)
    return sorted(found, key=lambda each: each.manifest.number), broken


def look_at(path: Path) -> Saved:
    """The checkpoint at `path`, by its manifest alone.

    Raises:
        OSError: There is no manifest, or it cannot be read.
        ValueError: The manifest is damaged.
    """
    try:
        return Saved(path, Manifest.of_json((path / MANIFEST).read_bytes()))
    except ValueError as error:
        raise ValueError(f"{MANIFEST} is damaged: {error}") from error


def verify(saved: Saved, files: Iterable[str] | None = None) -> None:
    """Read every file, or only those named, and compare sizes and checksums.

    Raises:
        OSError: A file is missing or cannot be read.
        ValueError: A file is not what was written.
    """
    for name in dict.fromkeys((TREE, *(saved.manifest.files if files is None else files))):
        if (expected := saved.manifest.files.get(name)) is None:
            raise ValueError(f"{MANIFEST} does not list {name}")
        found = contents_of(saved.path / name)
        if found.size != expected.size:
            raise ValueError(f"{name} has {found.size} bytes and should have {expected.size}")
        if found != expected:
            raise ValueError(f"{name} is damaged: its checksum is not the one in {MANIFEST}")


def read(saved: Saved) -> Snapshot:
    """What a checkpoint that was verified holds."""
    files = [Path(name) for name in saved.manifest.files]
    tensors = {file.stem: _tensors(saved.path / file) for file in files if file.suffix == TENSORS}
    return Snapshot(json.loads((saved.path / TREE).read_bytes()), tensors)


def read_objects(saved: Saved, only: str | None = None) -> dict[str, Any]:
    """The state of each object of the run, or of one, by name; the files they lie in are verified.

    Raises:
        OSError: A file is missing or cannot be read.
        ValueError: There was no object of that name, or a file is not what was written.
    """
    verify(saved, [])
    objects = json.loads((saved.path / TREE).read_bytes())["objects"]
    if only is not None and only not in objects:
        listed = ", ".join(map(repr, objects)) or "none"
        raise ValueError(f"{saved.path} holds no object {only!r}; its objects are: {listed}")
    chosen = objects if only is None else {only: objects[only]}
    files = {each["file"]: f"{each['file']}{TENSORS}" for each in chosen.values()}
    verify(saved, files.values())
    tensors = {name: _tensors(saved.path / file) for name, file in files.items()}
    return {name: decode(each["content"], tensors[each["file"]]) for name, each in chosen.items()}


def write(directory: Path, snapshot: Snapshot, manifest: Manifest) -> Saved:
    """Write a checkpoint that is complete, or not there at all; tell when it is on the disk.

    Raises:
        OSError: It could not be written. Nothing of it is left, and older ones are as they were.
    """
    place = _free(directory, manifest.iteration)
    try:
        make_directory(directory)
        sweep(directory)
        with appearing(place) as temporary:
            temporary.mkdir()
            number = 1 + max((each.manifest.number for each in scan(directory)[0]), default=0)
            whole = replace(manifest, number=number, files=_write_files(temporary, snapshot))
            (temporary / MANIFEST).write_text(whole.to_json())
            synchronise(temporary / MANIFEST)
        with appearing(directory / LATEST) as temporary:
            temporary.write_text(f"{place.name}\n")
    except (OSError, SafetensorError) as error:
        failure = OSError(
            f"could not write the checkpoint {place}: {error}. Nothing of it is left, and older "
            "ones are as they were"
        )
        failure.errno = getattr(error, "errno", None)
        raise failure from error
    return Saved(place, whole)


def drop(saved: Saved) -> None:
    """Remove a checkpoint; if that fails it stays, which is no reason to end a run."""
    try:
        vanish(saved.path)
    except OSError as error:
        logger.warning("the checkpoint %s is no longer wanted, but stays: %s", saved.path, error)


def _write_files(directory: Path, snapshot: Snapshot) -> dict[str, Contents]:
    for name, tensors in snapshot.tensors.items():
        save_file(_separate(tensors), directory / f"{name}{TENSORS}")
    (directory / TREE).write_text(json.dumps(snapshot.tree))
    usual = (directory / TREE).stat().st_mode  # safetensors' are for the owner's eyes only
    files = {}
    for path in sorted(directory.iterdir()):
        path.chmod(usual)
        synchronise(path)
        files[path.name] = contents_of(path)
    return files


def _tensors(file: Path) -> dict[str, Tensor]:
    # Cloned, or they would be windows on a file that may soon be dropped.
    return {name: each.clone() for name, each in load_file(file).items()}


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, contiguous and each with memory of its own, which safetensors asks for."""
    seen: set[int] = set()
    separate: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        plain = tensor.resolve_conj().resolve_neg().contiguous()
        memory = plain.untyped_storage().data_ptr()
        separate[name] = plain.clone() if memory in seen else plain
        seen.add(memory)
    return separate


def _free(directory: Path, iteration: int) -> Path:
    """A name that is not taken: an older checkpoint is dropped when the new one is safe."""
    name = f"iteration-{iteration:010d}"
    names = (name if number == 1 else f"{name}.{number}" for number in count(1))
    return next(path for each in names if not (path := directory / each).exists())

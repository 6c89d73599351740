"""A directory of checkpoints: writing them so that they last, and reading them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from .codec import decode
from .files import appearing, contents_of, make_directory, sweep, synchronise
from .manifest import Contents, Manifest
from .saved import LATEST, MANIFEST, TENSORS, TREE, Saved, scan, verify
from .snapshot import Snapshot


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

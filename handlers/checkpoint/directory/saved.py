"""One checkpoint on the disk, found by its manifest.

Importing this file imports no torch, which takes longer than looking at a directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...files import budget, regular
from ..format import MANIFEST, TENSORS, BrokenCheckpoint, Manifest, reading
from .contents import CheckpointFiles, read_objects, write_tensors

NAME = re.compile(r"iteration-\d{10,}(\.\d+)?", re.ASCII)


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


def names_in(directory: Path) -> list[str]:
    """The names of the checkpoints in a directory, in their order."""
    found = os.listdir(directory) if directory.is_dir() else []
    return sorted(filter(NAME.fullmatch, found))


def scan(
    directory: Path, names: Iterable[str] | None = None
) -> tuple[list[Saved], dict[str, BrokenCheckpoint]]:
    """The checkpoints in the order of writing; and the broken ones by name, with their errors.

    Only manifests are read, by default those of all checkpoints in the directory.
    """
    found: list[Saved] = []
    broken: dict[str, BrokenCheckpoint] = {}
    for name in names_in(directory) if names is None else names:
        try:
            found.append(saved_at(directory / name))
        except BrokenCheckpoint as error:
            broken[name] = error
    return sorted(found, key=lambda each: each.manifest.number), broken

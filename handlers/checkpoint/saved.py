"""Checkpoints on the disk: what they say of themselves, and whether they are whole.

Nothing here needs torch, whose import takes longer than looking at a directory of checkpoints.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .files import contents_of, size_of, vanish
from .manifest import Manifest

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
        from .store import read_objects

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


def verify(saved: Saved, files: Iterable[str] | None = None, *, quickly: bool = False) -> None:
    """Read every file, or only those named, and compare sizes and checksums; or the sizes alone.

    Raises:
        OSError: A file is missing or cannot be read.
        ValueError: A file is not what was written.
    """
    for name in dict.fromkeys((TREE, *(saved.manifest.files if files is None else files))):
        if (expected := saved.manifest.files.get(name)) is None:
            raise ValueError(f"{MANIFEST} does not list {name}")
        path = saved.path / name
        size = size_of(path)
        if size != expected.size:
            raise ValueError(f"{name} has {size} bytes and should have {expected.size}")
        if not quickly and contents_of(path) != expected:
            raise ValueError(f"{name} is damaged: its checksum is not the one in {MANIFEST}")


def drop(saved: Saved) -> None:
    """Remove a checkpoint; if that fails it stays, which is no reason to end a run."""
    try:
        vanish(saved.path)
    except OSError as error:
        logger.warning("the checkpoint %s is no longer wanted, but stays: %s", saved.path, error)

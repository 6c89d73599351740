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

from ..format.errors import BrokenCheckpoint, reading
from ..format.manifest import Manifest
from ..format.strict_json import LARGEST
from .files import CHUNK, contents_of, regular, size_of, vanish

logger = logging.getLogger("camshaft")

NAME = re.compile(r"iteration-\d{10,}(\.\d+)?")
MANIFEST, TREE, LATEST, TENSORS = "manifest.json", "state.json", "LATEST", ".safetensors"


@dataclass(frozen=True)
class Saved:
    """A checkpoint on the disk, as `checkpoints(directory)` finds it."""

    path: Path
    manifest: Manifest = field(repr=False)
    """When it was written, why, how well the run did, and what its files should hold."""

    def state_dict(self, object: str) -> Any:
        """The state of one of the run's objects, such as `"model"`, on the CPU.

        A model's is under the plain names of its weights, however it was wrapped:
        `model.load_state_dict(saved.state_dict("model"))`. The files it lies in are verified.

        Args:
            object: Its name among the engine's objects.

        Raises:
            BrokenCheckpoint: A file is missing, or not what was written.
            ValueError: There was no object of that name.
        """
        from .store import read_objects

        return read_objects(self, object)[object]

    def export(self, file: str | Path, object: str | None = None) -> Path:
        """Write one file that plain torch reads, with `torch.load(file, weights_only=True)`.

        It holds a dict: the state of each of the run's objects by its name, `"iteration"`,
        `"step"`, `"epoch"` and `"metrics"`. With `object="model"` it holds that state alone, so
        that `model.load_state_dict(torch.load(file, weights_only=True))` works. NumPy's arrays
        become tensors and its numbers Python's.

        Args:
            file: Where to write it; what is there is replaced, at once.
            object: The name of the one object to export; all of them by default.

        Raises:
            BrokenCheckpoint: A file is missing, or not what was written.
            OSError: The file cannot be written.
            TypeError: It holds something that such a file cannot.
            ValueError: There was no object of that name, or it cannot be told from a number.
        """
        from .pt_export import export

        return export(self, Path(file), object)


def scan(directory: Path) -> tuple[list[Saved], dict[str, str]]:
    """The checkpoints in order of writing; and what looks like one but is not, and why."""
    found: list[Saved] = []
    broken: dict[str, str] = {}
    names = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
    for name in filter(NAME.fullmatch, names):
        try:
            found.append(look_at(directory / name))
        except BrokenCheckpoint as error:
            broken[name] = error.reason
    return sorted(found, key=lambda each: each.manifest.number), broken


def look_at(path: Path) -> Saved:
    """The checkpoint at `path`, by its manifest alone.

    Raises:
        BrokenCheckpoint: There is no manifest, or it is damaged, or that of another checkpoint.
    """
    with reading(path, MANIFEST):
        if path.is_symlink():
            raise BrokenCheckpoint("it is a link to a directory; name the directory itself", path)
        with regular(path / MANIFEST) as file:
            text = file.read(LARGEST + 1)
        try:
            manifest = Manifest.of_json(text)
        except ValueError as error:
            raise ValueError(f"cannot be used: {error}") from error
        if NAME.fullmatch(path.name) and int(path.name[10:].split(".")[0]) != manifest.iteration:
            raise ValueError(f"is of iteration {manifest.iteration}: the directory was renamed")
    return Saved(path, manifest)


def verify(saved: Saved, files: Iterable[str] | None = None) -> None:
    """Read every file, or only those named, and compare sizes and checksums.

    Raises:
        BrokenCheckpoint: A file is missing, cannot be read, or is not what was written.
    """
    compare_sizes(saved)
    for name in saved.manifest.files if files is None else files:
        with reading(saved.path, name):
            if contents_of(saved.path / name) != saved.manifest.files[name]:
                raise ValueError(f"is damaged: its checksum is not the one in {MANIFEST}")
    if foreign := _foreign(saved):
        logger.warning("%s holds files that no checkpoint has: %s", saved.path, foreign)


def compare_sizes(saved: Saved) -> None:
    """Look whether every file is there and has its size, which takes no time.

    Raises:
        BrokenCheckpoint: One is missing, or has another size.
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


def drop(saved: Saved) -> bool:
    """Remove a checkpoint; False, with a warning, if it stays, which is no reason to end a run.

    One that holds files of somebody else stays with them.
    """
    try:
        if foreign := _foreign(saved):
            raise OSError(f"it holds files that are not Camshaft's: {foreign}; move them away")
        vanish(saved.path)
    except OSError as error:
        logger.warning("the checkpoint %s is no longer wanted, but stays: %s", saved.path, error)
        return False
    return True


def _foreign(saved: Saved) -> list[str]:
    known = {MANIFEST, *saved.manifest.files}
    return sorted(path.name for path in saved.path.iterdir() if path.name not in known)

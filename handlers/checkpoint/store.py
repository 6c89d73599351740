"""A directory of checkpoints: writing them so that they last, finding and reading them."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from shutil import disk_usage
from typing import Any

from safetensors import safe_open
from torch import Tensor

from .broken import BrokenCheckpoint, reading
from .codec import DTYPES
from .document import LARGEST, tree_of
from .files import (
    CHUNK,
    Source,
    appearing,
    contents_of,
    make_directory,
    need_space,
    regular,
    size_of,
    synchronise,
    vanish,
    write_file,
)
from .manifest import Manifest
from .retention import Keep
from .snapshot import Snapshot
from .staging import TENSORS, TREE, uncopied

WINDOW = 4 * 2**20
"""Bytes of a file that are read before it is opened anew."""

logger = logging.getLogger("camshaft")

NAME = re.compile(r"iteration-\d{10,}(\.\d+)?")
MANIFEST, LATEST = "manifest.json", "LATEST"
LARGEST_HEADER = 16 * 2**20
"""Bytes that say what tensors a file has: a hundred or two for each of them."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint on the disk; whether its files are whole is another question: `verify`."""

    path: Path
    manifest: Manifest


class Stored(Mapping[str, Tensor]):
    """The tensors of a file, each of which is read when it is asked for, and not kept.

    So a model can be loaded weight by weight, and no second one is ever in memory.
    """

    def __init__(self, path: Path) -> None:
        """Open a file; its tensors can be read until it is dropped."""
        with regular(path) as file:
            size = int.from_bytes(file.read(8), "little")
        if size > LARGEST_HEADER:
            raise ValueError(
                f"has a header of {size} bytes, and at most {LARGEST_HEADER} are taken"
            )
        self._path = path
        self._open()
        self._names = list(self._file.keys())

    def __getitem__(self, name: str) -> Tensor:
        """A new tensor with what the file holds."""
        if self._seen > WINDOW:
            self._open()
        tensor: Tensor = self._file.get_tensor(name)
        if tensor.dtype not in DTYPES:
            raise ValueError(f"has a tensor of {tensor.dtype}: {name!r}")
        self._seen += tensor.nbytes
        return tensor.clone()  # what was given is a window on the file

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _open(self) -> None:
        # What was looked at through a window counts as this process's memory until it is closed.
        self._file: Any = safe_open(self._path, "pt")
        self._seen = 0


def checkpoints(directory: str | Path) -> list[Saved]:
    """The checkpoints in a directory, in the order of writing.

    >>> checkpoints("there/is/no/such/directory")
    []
    """
    return scan(Path(directory))[0]


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


def verify(saved: Saved) -> None:
    """Read every file and compare sizes and checksums.

    Raises:
        BrokenCheckpoint: A file is missing, cannot be read, or is not what was written.
    """
    _compare_sizes(saved)
    for name, expected in saved.manifest.files.items():
        with reading(saved.path, name):
            if contents_of(saved.path / name) != expected:
                raise ValueError(f"is damaged: its checksum is not the one in {MANIFEST}")
    known = {MANIFEST, *saved.manifest.files}
    if foreign := sorted(path.name for path in saved.path.iterdir() if path.name not in known):
        logger.warning("%s holds files that no checkpoint has: %s", saved.path, foreign)


def read(saved: Saved) -> Snapshot:
    """What a checkpoint that was verified holds.

    Raises:
        BrokenCheckpoint: It holds what no checkpoint holds, though its checksums are right.
    """
    _compare_sizes(saved)
    with reading(saved.path, TREE), regular(saved.path / TREE) as file:
        tree = tree_of(file.read(LARGEST + 1))
    tensors = {}
    for file_name in map(Path, saved.manifest.files):
        if file_name.suffix == TENSORS:
            with reading(saved.path, file_name.name):
                tensors[file_name.stem] = Stored(saved.path / file_name)
    return Snapshot(tree, tensors)


def _compare_sizes(saved: Saved) -> None:
    if TREE not in saved.manifest.files:
        raise BrokenCheckpoint(f"{MANIFEST} does not list {TREE}", saved.path)
    for name, expected in saved.manifest.files.items():
        with reading(saved.path, name):
            size = size_of(saved.path / name)
            if size != expected.size:
                raise ValueError(f"has {size} bytes and should have {expected.size}")
            if len(expected.crc32) != -(-size // CHUNK):
                raise ValueError(f"has {len(expected.crc32)} checksums, which do not fit its size")


def write(directory: Path, snapshot: Snapshot, manifest: Manifest) -> Saved:
    """Write a snapshot that nobody changes meanwhile: see `write_files`."""
    return write_files(directory, uncopied(snapshot), manifest)


def write_files(directory: Path, sources: Mapping[str, Source], manifest: Manifest) -> Saved:
    """Write a checkpoint that is complete, or not there at all; tell when it is on the disk.

    Raises:
        OSError: It could not be written. Nothing of it is left, and older ones are as they were.
    """
    place = _free(directory, manifest.iteration)
    try:
        make_directory(directory)
        need_space(directory, sum(source.size for source in sources.values()))
        with appearing(place) as temporary:
            temporary.mkdir()
            number = _next_number(each.manifest for each in checkpoints(directory))
            with ThreadPoolExecutor(1, "camshaft-checksums") as helper:
                files = {
                    name: write_file(temporary / name, source, helper)
                    for name, source in sorted(sources.items())
                }
            whole = replace(manifest, number=number, files=files)
            (temporary / MANIFEST).write_text(whole.to_json())
            synchronise(temporary / MANIFEST)
        with appearing(directory / LATEST) as temporary:
            temporary.write_text(f"{place.name}\n")
    except OSError as error:
        raise _failure(place, error) from error
    return Saved(place, whole)


def is_claimed(directory: Path, keep: Keep, manifest: Manifest) -> bool:
    """True if a claim would keep this one, were it written now."""
    found = [each.manifest for each in checkpoints(directory)]
    new = replace(manifest, number=_next_number(found))
    return new.number in keep.claimed([*found, new])


def prune(
    directory: Path, keep: Keep, broken: Collection[str] = (), spared: Path | None = None
) -> None:
    """Drop the checkpoints that nobody claims, but not those to be spared, nor broken ones."""
    found = [each for each in checkpoints(directory) if each.path.name not in broken]
    kept = keep.kept(each.manifest for each in found)
    for each in found:
        if each.manifest.number not in kept and each.path.resolve() != spared:
            drop(each)


def drop(saved: Saved) -> None:
    """Remove a checkpoint; if that fails it stays, which is no reason to end a run."""
    try:
        vanish(saved.path)
    except OSError as error:
        logger.warning("the checkpoint %s is no longer wanted, but stays: %s", saved.path, error)


def _next_number(found: Iterable[Manifest]) -> int:
    return 1 + max((manifest.number for manifest in found), default=0)


def _failure(place: Path, error: OSError) -> OSError:
    """The error of a checkpoint that could not be written, of which nothing is left."""
    free = "unknown"
    with suppress(OSError):
        if place.exists():  # only its name, or LATEST, did not get to the disk
            vanish(place)
    with suppress(OSError):
        free = f"{disk_usage(place.parent).free:,}"
    failure = OSError(
        f"could not write the checkpoint {place}: {error} (bytes free there: {free}). Nothing of "
        "it is left, and older ones are as they were"
    )
    failure.errno = error.errno
    return failure


def _free(directory: Path, iteration: int) -> Path:
    """A name that is not taken: an older checkpoint is dropped when the new one is safe."""
    name = f"iteration-{iteration:010d}"
    names = (name if number == 1 else f"{name}.{number}" for number in count(1))
    return next(path for each in names if not (path := directory / each).exists())

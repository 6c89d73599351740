"""A directory of checkpoints: writing them so that they last, and reading them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from shutil import disk_usage
from typing import Any

from safetensors import safe_open
from torch import Tensor

from ..format.codec import DTYPES, decode
from ..format.errors import reading
from ..format.manifest import Manifest
from ..format.retention import Keep
from ..format.strict_json import LARGEST, tree_of
from ..format.tensors import LARGEST_HEADER
from ..snapshot import Snapshot
from .files import (
    Source,
    appearing,
    make_directory,
    need_space,
    regular,
    synchronise,
    vanish,
    write_file,
)
from .saved import LATEST, MANIFEST, TENSORS, TREE, Saved, compare_sizes, drop, scan, verify

logger = logging.getLogger("camshaft")

WINDOW = 4 * 2**20
"""Bytes of a file that are read before it is opened anew."""


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
        if str(tensor.dtype) not in DTYPES:
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


def read(saved: Saved) -> Snapshot:
    """What a checkpoint that was verified holds.

    Raises:
        BrokenCheckpoint: It holds what no checkpoint holds, though its checksums are right.
    """
    compare_sizes(saved)
    tree = _tree(saved)
    tensors = {}
    for file_name in map(Path, saved.manifest.files):
        if file_name.suffix == TENSORS:
            with reading(saved.path, file_name.name):
                tensors[file_name.stem] = Stored(saved.path / file_name)
    return Snapshot(tree, tensors)


def read_objects(saved: Saved, only: str | None = None) -> dict[str, Any]:
    """The state of each object of the run, or of one, by name; the files they lie in are verified.

    Raises:
        BrokenCheckpoint: A file is missing, or not what was written.
        ValueError: There was no object of that name.
    """
    verify(saved, [TREE])
    with reading(saved.path, TREE):
        objects = dict(_tree(saved)["objects"])
    if only is not None and only not in objects:
        listed = ", ".join(map(repr, objects)) or "none"
        raise ValueError(f"{saved.path} holds no object {only!r}; its objects are: {listed}")
    chosen = objects if only is None else {only: objects[only]}
    with reading(saved.path, TREE):
        files = {each["file"]: f"{each['file']}{TENSORS}" for each in chosen.values()}
        verify(saved, files.values())
        tensors = {name: Stored(saved.path / file) for name, file in files.items()}
        return {n: decode(each["content"], tensors[each["file"]]) for n, each in chosen.items()}


def write(directory: Path, sources: Mapping[str, Source], manifest: Manifest) -> Saved:
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
            number = _next_number(each.manifest for each in scan(directory)[0])
            with ThreadPoolExecutor(1, "camshaft-checksums") as helper:
                files = {
                    name: write_file(temporary / name, source, helper)
                    for name, source in sorted(sources.items())
                }
            whole = replace(manifest, number=number, files=files)
            (temporary / MANIFEST).write_text(whole.to_json())
            synchronise(temporary / MANIFEST)
    except OSError as error:
        raise _failure(place, error) from error
    _note_latest(place)
    return Saved(place, whole)


def _note_latest(place: Path) -> None:
    """Say which one is the newest, for people: no run goes by it, so it must not cost a save."""
    try:
        with appearing(place.with_name(LATEST)) as temporary:
            temporary.write_text(f"{place.name}\n")
    except OSError as error:
        logger.warning("%s is saved, but %s does not say so: %s", place, LATEST, error)


def is_claimed(directory: Path, keep: Keep, manifest: Manifest) -> bool:
    """True if a claim would keep this one, were it written now."""
    found = [each.manifest for each in scan(directory)[0]]
    new = replace(manifest, number=_next_number(found))
    return new.number in keep.claimed([*found, new])


def prune(
    directory: Path, keep: Keep, broken: Collection[str] = (), spared: Path | None = None
) -> None:
    """Drop the checkpoints that nobody claims, but not those to be spared, nor broken ones."""
    found = [each for each in scan(directory)[0] if each.path.name not in broken]
    kept = keep.kept(each.manifest for each in found)
    for each in found:
        if each.manifest.number not in kept and each.path.resolve() != spared:
            drop(each)


def _tree(saved: Saved) -> Any:
    with reading(saved.path, TREE), regular(saved.path / TREE) as file:
        return tree_of(file.read(LARGEST + 1))


def _next_number(found: Iterable[Manifest]) -> int:
    return 1 + max((manifest.number for manifest in found), default=0)


def _failure(place: Path, error: OSError) -> OSError:
    """The error of a checkpoint that could not be written, of which nothing is left."""
    free = "unknown"
    with suppress(OSError):
        if place.exists():  # only its name did not get to the disk
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

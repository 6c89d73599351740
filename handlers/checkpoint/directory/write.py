"""Writing checkpoints to a directory so that they last, and dropping old ones."""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from os.path import lexists
from pathlib import Path
from shutil import disk_usage

from ...files import appearing, created, make_directory, synchronise
from ..format import MANIFEST, Keep, Manifest, Payload, UnreadableError, needing_memory
from .catalogue import next_number, scan
from .files import foreign_files, vanish, write_files
from .saved import Saved
from .verify import read_back

logger = logging.getLogger("camshaft")

LATEST = "LATEST"


def write_checkpoint(
    directory: Path,
    payloads: Mapping[str, Payload],
    manifest: Manifest,
    before: Saved | None = None,
) -> Saved:
    """Write a whole checkpoint or nothing; when this returns, it is on the disk.

    Args:
        directory: The directory of the checkpoints.
        payloads: The files.
        manifest: What the checkpoint says of itself, without its number and its files.
        before: A checkpoint of the run; if it is of the same iteration, the new one gets its path,
            and the old one stays under another name until it is dropped. Files with the same bytes
            are shared with it.

    Raises:
        OSError: Writing failed. Nothing of the checkpoint is left; older ones are as they were.
        UnreadableError: The files could not be read again; none of them is left.
    """
    place, aside = place_for(directory, manifest.iteration, before)
    try:
        manifest = replace(manifest, number=next_number(directory))
        make_directory(directory)
        saved = write_at(place, aside, payloads, manifest, before)
    except OSError as error:
        raise failure_of(place, error) from error
    note_latest(place)
    return saved


def write_at(
    place: Path,
    aside: Path | None,
    payloads: Mapping[str, Payload],
    manifest: Manifest,
    before: Saved | None,
) -> Saved:
    """Write a checkpoint to a path, durably; an older one at this path is moved to `aside` first.

    Files with the same bytes are shared with the checkpoint `before`. After an error, the older one
    is at its path again.
    """
    earlier, known = (before.path, before.manifest.files) if before else (None, {})
    writing = needing_memory("write its files")
    with _put_back(place, aside), appearing(place, aside) as temporary, writing:
        temporary.mkdir()
        files = write_files(temporary, payloads, earlier, known)
        whole = replace(manifest, files=files)
        with created(temporary / MANIFEST) as file:
            file.write(whole.to_json().encode())
        synchronise(temporary / MANIFEST)
        read_back(temporary, place, whole)
    return Saved(place, whole)


@contextmanager
def _put_back(place: Path, aside: Path | None) -> Generator[None, None, None]:
    """After an error, remove a checkpoint whose name is not durable, and restore the old one."""
    try:
        yield
    except OSError:
        with suppress(OSError):
            if lexists(place) and (aside is None or lexists(aside)):
                vanish(place)
            if aside is not None and lexists(aside):
                aside.rename(place)
        raise


def is_claimed(directory: Path, keep: Keep, manifest: Manifest) -> bool:
    """True if a claim would keep a checkpoint with this manifest, were it written now."""
    new = replace(manifest, number=next_number(directory))
    return new.number in keep.claimed([*(each.manifest for each in scan(directory)[0]), new])


def set_aside(directory: Path) -> Path | None:
    """Move all checkpoints, broken ones too, to a new directory inside; None if there are none."""
    found, broken = scan(directory)
    names = [*(each.path.name for each in reversed(found)), *broken]
    if not names:
        return None
    place = next(p for n in count(1) if not lexists(p := directory / f"earlier.{n}"))
    make_directory(place)
    for name in [*names, LATEST]:
        with suppress(FileNotFoundError):  # LATEST is for people, who may have removed it
            (directory / name).rename(place / name)
    synchronise(place)
    synchronise(directory)
    return place


def drop_unclaimed(
    directory: Path, keep: Keep, broken: Collection[str] = (), spared: Path | None = None
) -> None:
    """Drop each checkpoint that no claim keeps, except broken ones and the spared one."""
    found = [each for each in scan(directory)[0] if each.path.name not in broken]
    kept = keep.kept(each.manifest for each in found)
    for each in found:
        if each.manifest.number not in kept and each.path.resolve() != spared:
            drop(each)


def drop(saved: Saved) -> bool:
    """Remove a checkpoint; False, with a warning, if it stays.

    A checkpoint with files that Camshaft did not write stays.
    """
    try:
        if foreign := foreign_files(saved.path, {MANIFEST, *saved.manifest.files}):
            raise OSError(f"it holds files that are not Camshaft's: {foreign}; move them away")
        vanish(saved.path)
    except OSError as error:
        logger.warning("the checkpoint %s is no longer wanted, but stays: %s", saved.path, error)
        return False
    return True


def note_latest(place: Path) -> None:
    """Name the newest checkpoint in `LATEST`: for people only, so an error is a warning."""
    try:
        with appearing(place.with_name(LATEST)) as temporary, created(temporary) as file:
            file.write(f"{place.name}\n".encode())
    except OSError as error:
        logger.warning("%s is saved, but %s does not say so: %s", place, LATEST, error)


def failure_of(place: Path, error: OSError) -> OSError:
    """The error to raise, with the free space of the disk."""
    free = "unknown"
    with suppress(OSError):
        free = f"{disk_usage(place.parent).free:,}"
    kind = UnreadableError if isinstance(error, UnreadableError) else OSError
    failure = kind(
        f"could not write the checkpoint {place}: {error} (bytes free there: {free}). Nothing of "
        "it is left, and older ones are as they were"
    )
    failure.errno = error.errno
    return failure


def place_for(directory: Path, iteration: int, before: Saved | None) -> tuple[Path, Path | None]:
    """The path for a checkpoint, and the path to which an older one there is moved."""
    unused = unused_path(directory, iteration)
    if before is None or before.manifest.iteration != iteration or not before.path.exists():
        return unused, None
    if foreign_files(before.path, {MANIFEST, *before.manifest.files}):
        return unused, None
    return before.path, unused


def unused_path(directory: Path, iteration: int) -> Path:
    """A free path: an older checkpoint of the iteration is dropped only after the save."""
    name = f"iteration-{iteration:010d}"
    names = (name if number == 1 else f"{name}.{number}" for number in count(1))
    return next(path for each in names if not lexists(path := directory / each))

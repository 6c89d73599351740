"""Writing checkpoints to a directory so that they last, and dropping old ones."""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from os.path import lexists
from pathlib import Path
from shutil import disk_usage

from ...files import beside, created, make_directory, put_in_place, remove_path, synchronise
from ..format import (
    MANIFEST,
    MANY,
    MOST_CHECKSUMS,
    Checksums,
    Keep,
    Manifest,
    Payload,
    TensorInfo,
    UnreadableError,
    folded_together,
    needing_memory,
)
from .catalogue import scan
from .files import read_back, read_manifest_back, write_files
from .saved import Saved, next_number

logger: logging.Logger = logging.getLogger("camshaft")

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
        manifest: See `commit`.
        before: See `commit`.

    Raises:
        OSError: Writing failed. Nothing of the checkpoint is left; older ones are as they were.
        UnreadableError: The files could not be read again, and none of them is left; or the
            manifest or a file would be too large, and nothing was written.
    """
    manifest.refuse_large(payloads, 1)
    place, _ = place_for(directory, manifest.iteration, before)
    temporary = beside(place, "tmp")
    try:
        with telling_failures(place):
            make_directory(directory)
            files = write_part(temporary, payloads, {}, before)
        return commit(directory, temporary, files, manifest, before)
    except BaseException:
        remove_path(temporary)
        raise


def write_part(
    temporary: Path,
    payloads: Mapping[str, Payload],
    meant: Mapping[str, TensorInfo],
    before: Saved | None = None,
) -> Mapping[str, Checksums]:
    """Write the files of a rank into a directory that all ranks write to; wait for the disk.

    Args:
        temporary: The directory.
        payloads: The files.
        meant: The pieces that they have to hold.
        before: A checkpoint with which files of the same bytes are shared.

    Raises:
        OSError: Writing failed; nothing of the files is left, and another attempt begins anew.
        UnreadableError: The written files cannot be read, or do not hold the pieces.
    """
    earlier, known = (before.path, before.manifest.files) if before else (None, {})
    with needing_memory("write its files"):
        if not temporary.is_dir():  # thousands of ranks would ask for one change of one directory
            temporary.mkdir(exist_ok=True)
        try:
            files = write_files(temporary, payloads, earlier, known)
            read_back(temporary, files, meant)
        except BaseException:
            for name in payloads:
                with suppress(OSError):
                    (temporary / name).unlink()
            raise
    return files


def commit(
    directory: Path,
    temporary: Path,
    files: Mapping[str, Checksums],
    manifest: Manifest,
    before: Saved | None = None,
    found: Collection[Saved] | None = None,
    *,
    is_whole: bool = True,
    place: Path | None = None,
) -> Saved:
    """Write the manifest of all ranks' files, and rename the directory to its final name.

    Args:
        directory: The directory of the checkpoints.
        temporary: Where the files are.
        files: Their checksums.
        manifest: What the checkpoint says of itself, without its files. It has a number only if an
            older checkpoint gets other files and keeps its place in the order of writing.
        before: A checkpoint of the run; if it is of the same iteration, the new one gets its path,
            and the old one stays under another name until it is dropped.
        found: The checkpoints of the directory, if they are known.
        is_whole: False if other hosts have some of the files, on disks of their own.
        place: The path to give it, where nothing is yet; by default one named by the iteration.

    Raises:
        OSError: Writing failed; what the ranks have written is still there, for another attempt.
        UnreadableError: The written files cannot be read again.
    """
    is_new = not manifest.number
    aside: Path | None = None
    if place is None:
        place, aside = place_for(directory, manifest.iteration, before)
    with telling_failures(place):
        make_directory(directory)
        number = manifest.number or next_number(scan(directory)[0] if found is None else found)
        is_much = len(files) > MANY or sum(len(e.crc32) for e in files.values()) > MOST_CHECKSUMS
        files = folded_together(files) if is_much else dict(files)
        manifest = replace(manifest, number=number, files=files)
        saved = _appear(temporary, place, aside, manifest, is_whole)
    if is_new:
        note_latest(place)
    return saved


def _appear(
    temporary: Path, place: Path, aside: Path | None, manifest: Manifest, is_whole: bool
) -> Saved:
    """Write the manifest, and durably rename the directory; an older one goes `aside` first."""
    (temporary / MANIFEST).unlink(missing_ok=True)  # left by an attempt that failed
    text = manifest.to_json()
    with created(temporary / MANIFEST) as file:
        file.write(text.encode())
    synchronise(temporary / MANIFEST)
    read_manifest_back(temporary, manifest, text, is_whole=is_whole)
    synchronise(temporary)
    with _named_back(temporary, place, aside):
        if aside is not None:
            place.rename(aside)
            synchronise(place.parent)
        temporary.rename(place)
        synchronise(place.parent)
    return Saved(place, manifest)


@contextmanager
def _named_back(temporary: Path, place: Path, aside: Path | None) -> Generator[None, None, None]:
    """After an error, undo a rename that is not yet durable, and restore the old checkpoint."""
    try:
        yield
    except OSError:
        with suppress(OSError):
            if not lexists(temporary) and (aside is None or lexists(aside)):
                place.rename(temporary)
            if aside is not None and lexists(aside):
                aside.rename(place)
        raise


@contextmanager
def telling_failures(place: Path) -> Generator[None, None, None]:
    """Name the checkpoint in an OSError from inside, and the free space of the disk."""
    try:
        yield
    except OSError as error:
        free = "unknown"
        with suppress(OSError):
            free = f"{disk_usage(place.parent).free:,}"
        kind = UnreadableError if isinstance(error, UnreadableError) else OSError
        failure = kind(
            f"could not write the checkpoint {place}: {error} (bytes free there: {free}). Nothing "
            "of it is left, and older ones are as they were"
        )
        failure.errno = error.errno
        raise failure from error


def is_claimed(found: Collection[Saved], keep: Keep, manifest: Manifest) -> bool:
    """True if a claim would keep a checkpoint with this manifest, were it written beside these."""
    new = replace(manifest, number=next_number(found))
    return new.number in keep.claimed([*(each.manifest for each in found), new])


def set_aside(directory: Path, but: Collection[Path] = ()) -> Path | None:
    """Move checkpoints, broken ones too, to a new directory inside; None if there are none."""
    found, broken = scan(directory)
    names = [*(each.path.name for each in reversed(found) if each.path not in but), *broken]
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


def unclaimed(
    found: Collection[Saved], keep: Keep, broken: Collection[str] = (), spared: Path | None = None
) -> list[Saved]:
    """The checkpoints that no claim keeps, except broken ones and the spared one."""
    found = [each for each in found if each.path.name not in broken]
    kept = keep.kept(each.manifest for each in found)
    return [
        each for each in found if each.manifest.number not in kept and each.path.resolve() != spared
    ]


def drop(saved: Saved) -> bool:
    """Remove a checkpoint; False, with a warning, if it stays: see `hide`."""
    paths = hide([saved])
    for path in paths:
        remove_path(path)
    return bool(paths)


def hide(unwanted: Iterable[Saved]) -> list[Path]:
    """Rename checkpoints, so that their names are gone: the hidden paths, to be removed.

    A checkpoint with files that Camshaft did not write stays, with a warning.
    """
    paths = list[Path]()
    for each in unwanted:
        try:
            if foreign := each.foreign:
                raise OSError(f"it holds files that are not Camshaft's: {foreign}; move them away")
            path = beside(each.path, "del")
            each.path.rename(path)
            paths.append(path)
        except OSError as error:
            logger.warning("the checkpoint %s is no longer wanted, but stays: %s", each.path, error)
    return paths


def note_latest(place: Path) -> None:
    """Name the newest checkpoint in `LATEST`: for people only, so an error is a warning."""
    try:
        put_in_place(place.with_name(LATEST), f"{place.name}\n".encode())
    except OSError as error:
        logger.warning("%s is saved, but %s does not say so: %s", place, LATEST, error)


def place_for(directory: Path, iteration: int, before: Saved | None) -> tuple[Path, Path | None]:
    """The path for a checkpoint, and the path to which an older one there is moved."""
    unused = unused_path(directory, iteration)
    if before is None or before.manifest.iteration != iteration or not before.path.exists():
        return unused, None
    if before.foreign:
        return unused, None
    return before.path, unused


def unused_path(directory: Path, iteration: int, taken: Collection[str] = ()) -> Path:
    """A free path: an older checkpoint of the iteration is dropped only after the save.

    Names that are `taken` are not free either, such as those in the directories of other hosts.
    """
    name = f"iteration-{iteration:010d}"
    names = (name if number == 1 else f"{name}.{number}" for number in count(1))
    paths = (directory / each for each in names if each not in taken)
    return next(path for path in paths if not lexists(path))

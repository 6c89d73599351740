"""A checkpoint of several ranks: each writes files of its own, and rank 0 commits them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from os.path import lexists
from pathlib import Path

from ...files import created, make_directory, synchronise
from ..format import (
    MANIFEST,
    TENSORS,
    Checksums,
    Manifest,
    Payload,
    TensorInfo,
    UnreadableError,
    needing_memory,
    tensors_in,
)
from .catalogue import next_number
from .files import write_files
from .saved import Saved
from .verify import read_back, refuse_other_pieces
from .write import failure_of, note_latest, place_for


def write_part(
    temporary: Path,
    payloads: Mapping[str, Payload],
    meant: Mapping[str, TensorInfo],
    before: Saved | None = None,
) -> dict[str, Checksums]:
    """Write the files of a rank into a directory that all ranks write to; wait for the disk.

    Args:
        temporary: The directory.
        payloads: The files.
        meant: The pieces that they have to hold.
        before: A checkpoint with which files of the same bytes are shared.

    Raises:
        OSError: Writing failed; another attempt begins anew.
        UnreadableError: The written file does not hold the pieces.
    """
    with needing_memory("write its files"):
        temporary.mkdir(exist_ok=True)
        for name in payloads:
            (temporary / name).unlink(missing_ok=True)  # left by an attempt that failed
        earlier, known = (before.path, before.manifest.files) if before else (None, {})
        files = write_files(temporary, payloads, earlier, known)
        synchronise(temporary)
    written = [name for name in payloads if name.endswith(TENSORS)]
    try:
        held = {key: info for n in written for key, info in tensors_in(temporary / n).items()}
        refuse_other_pieces(held, meant)
    except ValueError as error:
        raise UnreadableError(f"it could not be read again: {error}") from error
    return files


def commit(
    directory: Path,
    temporary: Path,
    files: Mapping[str, Checksums],
    manifest: Manifest,
    before: Saved | None = None,
) -> Saved:
    """Write the manifest of what all ranks have written, and give the directory its name.

    Raises:
        OSError: Writing failed; what the ranks have written is still there, for another attempt.
        UnreadableError: The written files cannot be read again.
    """
    place, aside = place_for(directory, manifest.iteration, before)
    try:
        make_directory(directory)
        whole = replace(manifest, number=next_number(directory), files=dict(files))
        (temporary / MANIFEST).unlink(missing_ok=True)
        with created(temporary / MANIFEST) as file:
            file.write(whole.to_json().encode())
        synchronise(temporary / MANIFEST)
        read_back(temporary, place, whole)
        synchronise(temporary)
        with _named_back(temporary, place, aside):
            if aside is not None:
                place.rename(aside)
                synchronise(directory)
            temporary.rename(place)
            synchronise(directory)
    except OSError as error:
        raise failure_of(place, error) from error
    note_latest(place)
    return Saved(place, whole)


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

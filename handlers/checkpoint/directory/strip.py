"""Strips checkpoints to the weights of their modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...files import regular, size_of, text_of
from ..format import MANIFEST, PLAIN_NAME, TENSORS, TRAIN, TREE, Payload, reading
from .contents import OF_RANK, piece_files, table_in, tree_in, verify_files
from .files import CHUNK, foreign_files
from .saved import Saved
from .tensor_files import TensorSource, payload_of
from .write import drop, unused_path, write_at


def module_files(saved: Saved) -> dict[str, int]:
    """The files of modules that remain when a checkpoint is stripped, with approximate sizes.

    Empty if the checkpoint holds nothing else. A module that is saved in pieces becomes one file.
    """
    if not saved.manifest.holds_run:
        return {}
    table = table_in(saved)
    whole = {f"{file}{TENSORS}": grids for file, grids in table.items() if PLAIN_NAME.match(file)}
    files = {name: sum(each.info.size for each in own.values()) for name, own in whole.items()}
    files |= {
        name: sums.size
        for name, sums in saved.manifest.files.items()
        if name.endswith(TENSORS) and not OF_RANK.fullmatch(name)
    }
    return {name: size for name, size in files.items() if name != f"{TRAIN}{TENSORS}"}


def strip(saved: Saved) -> Saved:
    """Replace a checkpoint by the weights of its modules: an export, from which no run resumes.

    The new files are on the disk before the old ones go; the path and the number stay.

    Raises:
        BrokenCheckpoint: A file is missing or damaged.
        OSError: Writing failed, or there are files that Camshaft did not write.
    """
    verify_files(saved)
    if foreign := foreign_files(saved.path, {MANIFEST, *saved.manifest.files}):
        raise OSError(f"{saved.path} holds files that are not Camshaft's: {foreign}")
    names = module_files(saved)
    with reading(saved.path, TREE):
        every = tree_in(saved)["objects"]
        kept = {name: each for name, each in every.items() if f"{each['file']}{TENSORS}" in names}
    pieces = piece_files(saved)
    files = {
        name: _put_together(pieces[file])
        if (file := name.removesuffix(TENSORS)) in pieces
        else _copied(saved.path / name)
        for name in names
    }
    files[TREE] = Payload.of(text_of({"objects": kept}).encode())
    aside = unused_path(saved.path.parent, saved.manifest.iteration)
    stripped = write_at(saved.path, aside, files, saved.manifest, saved)
    drop(Saved(aside, saved.manifest))
    return stripped


def _put_together(source: TensorSource) -> Payload:
    return payload_of(source, {name: name for name in source})


def _copied(path: Path) -> Payload:
    def pieces() -> Iterator[memoryview]:
        with regular(path) as file:
            while piece := file.read(CHUNK):
                yield memoryview(piece)

    return Payload(size_of(path), pieces)

"""A checkpoint that is stripped to the weights of its modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...files import regular, size_of, text_of
from ..format import CHUNK, PLAIN_NAME, TENSORS, TRAIN, TREE, Payload, reading, tree_in
from .contents import OF_RANK, payload_of, table_in, tensors_by_name
from .saved import Saved
from .verify import verify_files
from .write import Directory


def module_files(saved: Saved) -> dict[str, int]:
    """The files of modules that remain when a checkpoint is stripped, with approximate sizes.

    Empty if the checkpoint holds nothing else. A module that is saved in pieces becomes one file.
    """
    if not saved.manifest.holds_run:
        return {}
    cut = {file: grids for file, grids in table_in(saved).items() if PLAIN_NAME.match(file)}
    sizes = {f"{file}{TENSORS}": sum(e.info.size for e in cut[file].values()) for file in cut}
    for name, sums in saved.manifest.files.items():
        if name.endswith(TENSORS) and not OF_RANK.fullmatch(name):
            sizes[name] = sums.size
    sizes.pop(f"{TRAIN}{TENSORS}", None)
    return sizes


def strip_to_weights(saved: Saved) -> Saved:
    """Replace a checkpoint by the weights of its modules: an export, from which no run resumes.

    The new files are on the disk before the old ones go; the path and the number stay.
    """
    verify_files(saved)
    if foreign := saved.foreign:
        raise OSError(f"{saved.path} holds files that are not Camshaft's: {foreign}")
    names = module_files(saved)
    with reading(saved.path, TREE):
        every = tree_in(saved.path)["objects"]
        kept = {name: each for name, each in every.items() if f"{each['file']}{TENSORS}" in names}
    tensors = tensors_by_name(saved)
    files = {
        name: _copied(saved.path / name)
        if name in saved.manifest.files
        else payload_of(tensors[name.removesuffix(TENSORS)])
        for name in names
    }
    files[TREE] = Payload.of(text_of({"objects": kept}).encode())
    home = Directory(saved.path.parent)
    aside = home.unused(saved.manifest.iteration)
    stripped = home.write(files, saved.manifest, saved)
    home.drop(Saved(aside, saved.manifest))
    return stripped


def _copied(path: Path) -> Payload:
    def pieces() -> Iterator[memoryview]:
        with regular(path) as file:
            while piece := file.read(CHUNK):
                yield memoryview(piece)

    return Payload(size_of(path), pieces)

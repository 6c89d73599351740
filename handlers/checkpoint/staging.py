"""A checkpoint in memory, between the run that goes on and the thread that writes it."""

from __future__ import annotations

from .directory.files import Source
from .directory.saved import TENSORS, TREE
from .format.strict_json import text_of
from .format.tensors import Image, streamed
from .snapshot import Snapshot


class Staging:
    """The files of a run's checkpoints in memory, which each save uses again."""

    def __init__(self) -> None:
        """Start with none; memory is taken when a save first needs it."""
        self._images: dict[str, Image] = {}

    def take(self, snapshot: Snapshot) -> dict[str, Source]:
        """Copy a snapshot; what it was taken from may change, and the next copy replaces it."""
        self._images = {
            file: image
            for file, image in self._images.items()
            if file in snapshot.tensors and image.fits(snapshot.tensors[file])
        }
        for file, tensors in snapshot.tensors.items():
            if file not in self._images:
                self._images[file] = Image(tensors)
            self._images[file].take(tensors)
        images = self._images.items()
        files = {f"{file}{TENSORS}": Source.of(image.content) for file, image in images}
        return files | {TREE: _tree(snapshot)}


def uncopied(snapshot: Snapshot) -> dict[str, Source]:
    """The files of a snapshot that does not change until they are written."""
    files = {f"{file}{TENSORS}": streamed(tensors) for file, tensors in snapshot.tensors.items()}
    return files | {TREE: _tree(snapshot)}


def _tree(snapshot: Snapshot) -> Source:
    return Source.of(text_of(snapshot.tree).encode())

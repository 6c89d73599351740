"""A checkpoint that is read once: the bytes that are verified are those that are loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...format import TENSORS, TRAIN, TensorInfo, tensors_in_order
from ..tensor_files import TensorSource
from .checkpoint_files import CheckpointFiles
from .checksums import Places
from .tensors import OF_RANK
from .verify import verify_files

if TYPE_CHECKING:
    from torch import Tensor

MOST_OF_MODULES = 2**30
"""Bytes of modules' files that wait in memory until all files are verified."""


class Held:
    """Verifies checkpoints, and keeps the tensors of the last one that was whole.

    Each tensor is read into memory of its own, where what an optimizer or a handler keeps stays.
    A module's weights are copied from there into the module, so its file waits in memory beside
    it; if such files are large, they are left to be read again, weight by weight.
    """

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._path: Path | None = None
        self._tensors = dict[str, HeldTensors]()

    def verify(self, saved: CheckpointFiles) -> None:
        """Read every file, and compare sizes and checksums, as `verify_files` does.

        Raises:
            BrokenCheckpoint: A file is missing, unreadable or damaged; nothing is held.
        """
        self._path, self._tensors = None, {}
        left = MOST_OF_MODULES

        def places(name: str) -> Places | None:
            nonlocal left
            file, size = name.removesuffix(TENSORS), saved.manifest.files[name].size
            if not name.endswith(TENSORS) or OF_RANK.fullmatch(name):
                return None
            if file != TRAIN and size > left:
                return None
            if (made := _memory_for(saved.path / name)) is None:
                return None
            left -= 0 if file == TRAIN else size
            self._tensors[file], found = made
            return found

        try:
            verify_files(saved, places=places)
        except BaseException:
            self._tensors = {}
            raise
        self._path = saved.path

    def of(self, saved: CheckpointFiles) -> Mapping[str, TensorSource]:
        """The tensors that are in memory, by file and name; empty for another checkpoint."""
        return self._tensors if saved.path == self._path else {}


class HeldTensors(TensorSource):
    """The tensors of a file, in memory."""

    def __init__(self, infos: Mapping[str, TensorInfo], tensors: Mapping[str, Tensor]) -> None:
        self._infos, self._tensors = infos, tensors

    def __getitem__(self, name: str) -> Tensor:
        """The tensor itself: it has one owner, whom it stays with."""
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def info(self, name: str) -> TensorInfo:
        """The type and the shape of a tensor."""
        return self._infos[name]

    def fill(self, name: str, begin: tuple[int, ...], into: Tensor) -> None:
        """Copy the part that begins at these places into a tensor of its shape."""
        at = zip(begin, into.shape, strict=True)
        into.copy_(self._tensors[name][tuple(slice(place, place + size) for place, size in at)])


def _memory_for(path: Path) -> tuple[HeldTensors, Places] | None:
    """Memory for each tensor of a file, and for what lies before them.

    None for a file that is not read at once: a reader of single tensors says what is wrong, or does
    without what a file of holes pretends to have.
    """
    import torch

    try:
        header, infos = tensors_in_order(path)
        if path.lstat().st_blocks * 512 < sum(each.size for each in infos.values()):
            return None
        made = {
            name: torch.empty(each.shape, dtype=getattr(torch, each.dtype), device="cpu")
            for name, each in infos.items()
        }
        bodies = [each.reshape(-1).view(torch.uint8).numpy().data for each in made.values()]
    except (AttributeError, OSError, ValueError, MemoryError, RuntimeError):
        return None
    return HeldTensors(infos, made), Places([memoryview(bytearray(header)), *bodies])

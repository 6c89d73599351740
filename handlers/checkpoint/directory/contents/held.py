"""Tensors that stay in memory when their file is verified, so that the file is read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...format import TENSORS, TRAIN, TensorInfo, tensors_in_order
from ..tensor_files import TensorSource
from .checkpoint_files import CheckpointFiles
from .checksums import Places
from .verify import verify_files

if TYPE_CHECKING:
    from torch import Tensor


class Held:
    """Verifies checkpoints, and holds the tensors of the last good one, except modules' weights.

    Each tensor gets memory of its own, which an optimizer or a handler takes over. Weights are
    copied from their file into the module after all files are verified: the operating system still
    has the file in its cache, so this process needs no memory for them.
    """

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._path: Path | None = None
        self._tensors: HeldTensors | None = None

    def verify(self, saved: CheckpointFiles) -> None:
        """Read every file, and compare sizes and checksums, as `verify_files` does.

        Raises:
            BrokenCheckpoint: A file is missing, unreadable or damaged; nothing is held.
        """
        self._path = self._tensors = None

        def places(name: str) -> Places | None:
            if name != f"{TRAIN}{TENSORS}" or (made := _memory_for(saved.path / name)) is None:
                return None
            self._tensors, found = made
            return found

        try:
            verify_files(saved, places=places)
        except BaseException:
            self._tensors = None
            raise
        self._path = saved.path

    def of(self, saved: CheckpointFiles) -> Mapping[str, TensorSource]:
        """The tensors that are in memory, by file and name; empty if another checkpoint is held."""
        if self._tensors is None or saved.path != self._path:
            return {}
        return {TRAIN: self._tensors}


class HeldTensors(TensorSource):
    """The tensors of a file, in memory."""

    def __init__(self, infos: Mapping[str, TensorInfo], tensors: Mapping[str, Tensor]) -> None:
        self._infos, self._tensors = infos, tensors

    def __getitem__(self, name: str) -> Tensor:
        """The tensor itself and no copy, since only one owner ever takes it."""
        return self._tensors[name]

    def __contains__(self, name: object) -> bool:
        """True if there is a tensor of this name; the tensor is not read."""
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def info(self, name: str) -> TensorInfo:
        """The type and the shape of a tensor."""
        return self._infos[name]

    def fill(self, name: str, begin: tuple[int, ...], into: Tensor) -> None:
        """Fill `into` with the part of a tensor that begins at these indices."""
        at = zip(begin, into.shape, strict=True)
        into.copy_(self._tensors[name][tuple(slice(place, place + size) for place, size in at)])


def _memory_for(path: Path) -> tuple[HeldTensors, Places] | None:
    """Memory for the header of a file and for each of its tensors.

    None for a file that cannot be read as a whole. The reader of single tensors then reports what
    is wrong with it, and needs no memory for the holes of a sparse file.
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

"""Tensors whose pieces lie in the files of several ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...format import TENSORS, Grid, TensorInfo, rank_file
from .tensor_file import TensorFile, TensorSource

if TYPE_CHECKING:
    from torch import Tensor

MOST_OPEN = 32
"""The most files of ranks that are open at a time."""


class RankFiles:
    """The files of ranks, opened when they are needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[int, TensorFile] = {}

    def __getitem__(self, rank: int) -> TensorFile:
        """The file of a rank; if too many files are open, the least recently used one is closed."""
        file = self._open.pop(rank, None)
        if file is None:
            if len(self._open) >= MOST_OPEN:
                del self._open[next(iter(self._open))]
            file = TensorFile(self._path / f"{rank_file(rank)}{TENSORS}")
        self._open[rank] = file
        return file


class PieceFile(TensorSource):
    """Tensors by name, put together from those pieces that a read needs."""

    def __init__(self, file: str, grids: Mapping[str, Grid], files: RankFiles) -> None:
        self._file, self._grids, self._files = file, grids, files

    def __getitem__(self, name: str) -> Tensor:
        """The whole tensor, as a new one."""
        return self.read(name, [(0, size) for size in self._grids[name].shape])

    def __contains__(self, name: object) -> bool:
        """True if there is a tensor of this name; the tensor is not read."""
        return name in self._grids

    def __iter__(self) -> Iterator[str]:
        return iter(self._grids)

    def __len__(self) -> int:
        return len(self._grids)

    def info(self, name: str) -> TensorInfo:
        """The type and the shape of a tensor; its values are not read."""
        return self._grids[name].info

    def fill(self, name: str, begin: tuple[int, ...], into: Tensor) -> None:
        """Fill `into` with the part of a tensor that begins at these indices."""
        meant = [(a, a + size) for a, size in zip(begin, into.shape, strict=True)]
        for piece in self._grids[name].pieces(meant):
            # Both ranges are in indices of the whole tensor: the part to read, and the piece.
            common = [
                (max(a, first), min(b, last))
                for (a, b), first, last in zip(meant, piece.begin, piece.end, strict=True)
            ]
            inside = tuple(a - first for (a, _), first in zip(common, piece.begin, strict=True))
            target = tuple(
                slice(a - first, b - first) for (a, b), first in zip(common, begin, strict=True)
            )
            self._files[piece.rank].fill(piece.key(self._file, name), inside, into[target])

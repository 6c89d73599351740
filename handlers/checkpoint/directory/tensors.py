"""The tensors of a checkpoint: each stays in its files until it, or a part of it, is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..format import (
    DTYPES,
    TENSORS,
    Grid,
    Payload,
    Piece,
    TensorInfo,
    layout,
    open_tensors,
    rank_file,
    reading,
    tensors_in,
)

if TYPE_CHECKING:
    from torch import Tensor

Box = Sequence[tuple[int, int]]
"""For each dimension where a part of a tensor begins and ends."""
MAPPED = 16 * 2**20
"""Bytes of tensors that are read before their file is opened anew."""
MOST_OPEN = 32
"""The most files that are open at a time: there may be one for each of thousands of ranks."""


class OpenFiles:
    """The files of tensors in a directory; each is opened when it is read from."""

    def __init__(self, directory: Path, checkpoint: Path | None = None) -> None:
        """Open nothing yet.

        Args:
            directory: Where the files lie.
            checkpoint: The checkpoint to name in an error, if the files are those of one.
        """
        self._directory, self._checkpoint = directory, checkpoint
        self._open: dict[str, tuple[Any, int]] = {}
        """Open files, and the bytes that were read from each; the one just used comes last."""

    def fill(self, into: Tensor, file: str, name: str, begin: Sequence[int]) -> None:
        """Fill `into` with the part of a tensor in a file that begins at these indices.

        Raises:
            BrokenCheckpoint: The file of a checkpoint cannot be read.
            ValueError: The part has another type or shape.
        """
        with reading(self._checkpoint, file) if self._checkpoint else nullcontext():
            opened, mapped = self._opened(file)
            if begin:
                at = zip(begin, into.shape, strict=True)
                slices = tuple(slice(place, place + size) for place, size in at)
                part = opened.get_slice(name)[slices]
            else:  # a single number has no slices
                part = opened.get_tensor(name)
            if part.dtype != into.dtype or part.shape != into.shape:
                raise ValueError(f"has another type or shape than it should: {name!r}")
            into.copy_(part)
            self._open[file] = opened, mapped + into.nbytes

    def _opened(self, file: str) -> tuple[Any, int]:
        opened, mapped = self._open.pop(file, (None, 0))
        # The pages of a mapped file count as this process's memory until the file is closed.
        if opened is None or mapped > MAPPED:
            while len(self._open) >= MOST_OPEN:
                del self._open[next(iter(self._open))]
            opened, mapped = open_tensors(self._directory / file, "pt"), 0
        return opened, mapped


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor in the files of a checkpoint; its values are read when they are asked for.

    A model is thus loaded weight by weight, without a second model in memory, and each of several
    ranks reads its own part alone. A tensor that one file holds whole is a grid of one piece.
    """

    info: TensorInfo
    grid: Grid
    files: OpenFiles
    file: str
    """The name of its file; of a tensor in pieces, the file in which one rank would have it."""
    name: str
    is_cut: bool = False
    """True if its pieces lie in the files of ranks."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""
        return self.info.shape

    def read(self, box: Box | None = None) -> Tensor:
        """A new tensor with this part, by default with all of it; nothing else is read.

        Raises:
            BrokenCheckpoint: A file cannot be read.
            ValueError: No save writes a tensor of this type.
        """
        import torch

        if f"torch.{self.info.dtype}" not in DTYPES:
            raise ValueError(f"has a tensor of {self.info.dtype}: {self.name!r}")
        box = [(0, size) for size in self.shape] if box is None else box
        dtype = getattr(torch, self.info.dtype)
        made = torch.empty([last - first for first, last in box], dtype=dtype, device="cpu")
        self.fill(made, [first for first, _ in box])
        return made

    def fill(self, into: Tensor, begin: Sequence[int] | None = None) -> None:
        """Fill a tensor with the part of its shape that begins at these indices, by default at 0.

        Raises:
            BrokenCheckpoint: A file cannot be read.
            ValueError: A part has another type or shape.
        """
        begin = [0] * len(self.shape) if begin is None else begin
        meant = [(a, a + size) for a, size in zip(begin, into.shape, strict=True)]
        for piece in self.grid.pieces(meant) if into.numel() else ():
            # Both ranges are in indices of the whole tensor: the part to read, and the piece.
            common = [
                (max(a, first), min(b, last))
                for (a, b), first, last in zip(meant, piece.begin, piece.end, strict=True)
            ]
            inside = [a - first for (a, _), first in zip(common, piece.begin, strict=True)]
            target = tuple(
                slice(a - first, b - first) for (a, b), first in zip(common, begin, strict=True)
            )
            self.files.fill(into[target], *self._place(piece), inside)

    def _place(self, piece: Piece) -> tuple[str, str]:
        """The file that holds a piece, and the name of the piece in it."""
        if self.is_cut:
            return f"{rank_file(piece.rank)}{TENSORS}", piece.key(self.file, self.name)
        return self.file, self.name


def stored_in(path: Path, files: OpenFiles | None = None) -> dict[str, StoredTensor]:
    """The tensors of one file, by name; only its header is read.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is not a `.safetensors` file.
    """
    files = files or OpenFiles(path.parent)
    return {
        name: StoredTensor(
            info, Grid.whole(f"torch.{info.dtype}", info.shape), files, path.name, name
        )
        for name, info in tensors_in(path).items()
    }


def stored_in_pieces(
    file: str, grids: Mapping[str, Grid], files: OpenFiles
) -> dict[str, StoredTensor]:
    """The tensors whose pieces lie in the files of ranks, by name; nothing is read."""
    return {
        name: StoredTensor(grid.info, grid, files, file, name, is_cut=True)
        for name, grid in grids.items()
    }


def payload_of(tensors: Mapping[str, StoredTensor]) -> Payload:
    """A `.safetensors` file of these tensors, with one of them in memory at a time."""
    import torch

    def form(info: TensorInfo) -> Tensor:
        return torch.empty(info.shape, dtype=getattr(torch, info.dtype), device="meta")

    forms = {name: form(each.info) for name, each in tensors.items()}
    header, places = layout(forms)

    def pieces() -> Iterator[memoryview]:
        yield memoryview(header)
        for name in places:
            tensor = tensors[name].read().reshape(-1)
            if tensor.numel():
                yield tensor.view(torch.uint8).numpy().data

    return Payload(len(header) + sum(each.nbytes for each in forms.values()), pieces)

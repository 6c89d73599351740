"""What a checkpoint holds: its plain values, and its tensors.

A tensor stays in its files until it, or a part of it, is read. This module verifies no file; what
a file cannot have of a run is a BrokenCheckpoint.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..format import (
    DTYPES,
    FROZEN,
    PIECES,
    TENSORS,
    TREE,
    Grid,
    Payload,
    Table,
    TensorInfo,
    open_tensors,
    rank_file,
    reading,
    references,
    stream_of,
    table_of_tree,
    tensors_in,
    tree_at,
    tree_in,
)

if TYPE_CHECKING:
    from torch import Tensor

    from .saved import Saved

OF_RANK = re.compile(r"rank-\d{5,}\.safetensors", re.ASCII)
"""The names of the files that ranks write for themselves; see `rank_file`."""
Box = Sequence[tuple[int, int]]
"""For each dimension where a part of a tensor begins and ends."""
MAPPED = 16 * 2**20
"""Bytes of tensors that are read before their file is opened anew."""
MOST_OPEN = 32
"""The most files that are open at a time: there may be one for each of thousands of ranks."""


def table_in(saved: Saved) -> Table:
    """The table of how tensors are cut into pieces; empty if no tensor is cut."""
    if PIECES not in saved.manifest.files:
        return {}
    tree = tree_at(saved.path, PIECES)
    with reading(saved.path, PIECES):
        return table_of_tree(tree, saved.manifest.world_size)


class OpenFiles:
    """The files of tensors in a directory; each is opened when it is read from."""

    def __init__(self, directory: Path, *, in_checkpoint: bool = True) -> None:
        """Open nothing yet; an error names the directory if it is a checkpoint."""
        self._directory, self._in_checkpoint = directory, in_checkpoint
        self._open: dict[str, tuple[Any, int]] = {}
        """Open files, and the bytes that were read from each; the one just used comes last."""

    def fill(self, into: Tensor, file: str, name: str, begin: Sequence[int]) -> None:
        """Fill `into` with the part of a tensor in a file that begins at these indices."""
        with reading(self._directory, file) if self._in_checkpoint else nullcontext():
            opened, mapped = self._opened(file)
            stored = opened.get_slice(name)
            if any(begin) or stored.get_shape() != list(into.shape):
                at = zip(begin, into.shape, strict=True)
                part = stored[tuple(slice(place, place + size) for place, size in at)]
            else:  # the whole tensor, or a single number, which has no slices
                part = opened.get_tensor(name)
            if part.dtype != into.dtype or part.shape != into.shape:
                raise ValueError(f"has another type or shape than it should: {name!r}")
            self._open[file] = opened, mapped + into.nbytes
        into.copy_(part)  # an error here is of the script's tensor, not of the file

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
    ranks reads its own part alone.
    """

    info: TensorInfo
    files: OpenFiles
    file: str
    """The name of its file; of a tensor in pieces, the file in which one rank would have it."""
    name: str
    grid: Grid | None = None
    """How it is cut into pieces, which lie in the files of ranks; None if one file holds it."""
    kept: Tensor | None = None
    """Its values, if they were read already: see `VerifyingReader`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""
        return self.info.shape

    def read(self, box: Box | None = None) -> Tensor:
        """A tensor with this part, by default with all of it; nothing else is read."""
        import torch

        if self.kept is not None:
            return self.kept if box is None else self.kept[tuple(slice(*each) for each in box)]
        if f"torch.{self.info.dtype}" not in DTYPES:
            raise ValueError(f"has a tensor of {self.info.dtype}: {self.name!r}")
        box = [(0, size) for size in self.shape] if box is None else box
        dtype = getattr(torch, self.info.dtype)
        made = torch.empty([last - first for first, last in box], dtype=dtype, device="cpu")
        self.fill(made, [first for first, _ in box])
        return made

    def fill(self, into: Tensor, begin: Sequence[int] | None = None) -> None:
        """Fill a tensor with the part of its shape that begins at these indices, or at 0."""
        begin = [0] * len(self.shape) if begin is None else begin
        if not into.numel():
            return
        if self.grid is None:
            self.files.fill(into, self.file, self.name, begin)
            return
        meant = [(a, a + size) for a, size in zip(begin, into.shape, strict=True)]
        for piece in self.grid.pieces(meant):
            # Both ranges are in indices of the whole tensor: the part to read, and the piece.
            common = [
                (max(a, first), min(b, last))
                for (a, b), first, last in zip(meant, piece.begin, piece.end, strict=True)
            ]
            inside = [a - first for (a, _), first in zip(common, piece.begin, strict=True)]
            target = tuple(
                slice(a - first, b - first) for (a, b), first in zip(common, begin, strict=True)
            )
            file = f"{rank_file(piece.rank)}{TENSORS}"
            self.files.fill(into[target], file, piece.key(self.file, self.name), inside)


def stored_in(path: Path, files: OpenFiles | None = None) -> dict[str, StoredTensor]:
    """The tensors of one file, by name; only its header is read."""
    files = files or OpenFiles(path.parent, in_checkpoint=False)
    return {
        name: StoredTensor(info, files, path.name, name) for name, info in tensors_in(path).items()
    }


def tensors_by_name(
    saved: Saved, files: Collection[str] | None = None, but: Collection[str] = ()
) -> dict[str, dict[str, StoredTensor]]:
    """The tensors of a verified checkpoint by file and name, without some files; or of `files`.

    The file of a tensor in pieces is the one in which a single rank would have it. The tensors of
    a module that lie in two files, because some are frozen, are those of the first one.
    """
    opened, table = OpenFiles(saved.path), table_in(saved)
    found = dict[str, dict[str, StoredTensor]]()
    for name in saved.manifest.files:
        file = name.removesuffix(TENSORS)
        is_wanted = files is None or file.removesuffix(FROZEN) in files
        if is_wanted and file not in but and name.endswith(TENSORS) and not OF_RANK.fullmatch(name):
            with reading(saved.path, name):
                found[file] = stored_in(saved.path / name, opened)
    for file in [each for each in found if f"{each}{FROZEN}" in found]:
        found[file] = found[f"{file}{FROZEN}"] | found[file]
    cut = (each for each in table if files is None or each in files)
    for file in cut:
        own = table[file].items()
        found[file] = {n: StoredTensor(grid.info, opened, file, n, grid) for n, grid in own}
    return found


def contents_of(saved: Saved) -> tuple[Any, list[tuple[str, list[StoredTensor], str]]]:
    """What a verified checkpoint holds: its run as JSON, and the tensors of each of its objects.

    The run is that of the first rank; None for an export. Of each object its name, its tensors, and
    the file of these, or a pattern of several files; those of the run come last.
    """
    with reading(saved.path, TREE):
        objects, tensors = tree_in(saved.path)["objects"], tensors_by_name(saved)
        holds_run, rows = saved.manifest.holds_run, list[tuple[str, list[StoredTensor], str]]()
        run = tree_at(saved.path, f"{rank_file(0)}.json")["run"] if holds_run else None
        unowned = {file: dict(each) for file, each in tensors.items()}
        for name, each in objects.items():
            own = [unowned[each["file"]].pop(tensor) for tensor in {*references(each["content"])}]
            rows.append((name, own, each["file"]))
        files = {file for _, _, file in rows}
        split = {file for file in files if f"{file}{FROZEN}" in tensors.keys() - files}
        others = {f: t for f, t in unowned.items() if t and f.removesuffix(FROZEN) not in split}
        rows += [("(the run)", [*rest.values()], file) for file, rest in others.items()]
        names = {file: f"{file}{'*' if file in split else ''}{TENSORS}" for file in tensors}
        cut = {f for f, own in tensors.items() if any(each.grid for each in own.values())}
        names |= dict.fromkeys(cut, f"{rank_file(0)[:5]}*{TENSORS}")
        return run, [(name, own, names[file]) for name, own, file in rows]


def read_part(saved: Saved, rank: int) -> tuple[Any, dict[str, StoredTensor]]:
    """The state of the run that one rank has saved, and its tensors; of a verified checkpoint."""
    own, tensors = rank_file(rank), dict[str, StoredTensor]()
    if (name := f"{own}{TENSORS}") in saved.manifest.files:
        with reading(saved.path, name):
            tensors = stored_in(saved.path / name, OpenFiles(saved.path))
    return tree_at(saved.path, f"{own}.json"), tensors


def payload_of(tensors: Mapping[str, StoredTensor]) -> Payload:
    """A `.safetensors` file of these tensors, with one of them in memory at a time."""
    import torch

    def form(info: TensorInfo) -> Tensor:
        return torch.empty(info.shape, dtype=getattr(torch, info.dtype), device="meta")

    forms = {name: form(each.info) for name, each in tensors.items()}
    return stream_of(forms, lambda name: tensors[name].read())

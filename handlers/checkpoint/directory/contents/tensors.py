"""Access to a checkpoint's tensors: whole ones, those in pieces by rank, those of one rank."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ...format import FROZEN, PIECES, TENSORS, Shares, TensorInfo, rank_file, reading, tensors_in
from ..tensor_files import Joined, PieceFile, RankFiles, TensorFile, TensorSource
from .checkpoint_files import CheckpointFiles
from .trees import table_in, tree_at, tree_in
from .verify import check_pieces, compare_sizes, verify_files

if TYPE_CHECKING:
    from torch import Tensor

OF_RANK = re.compile(r"rank-\d{5,}\.safetensors", re.ASCII)


def read_checkpoint(
    saved: CheckpointFiles, held: Mapping[str, TensorSource] | None = None
) -> tuple[Any, dict[str, TensorSource]]:
    """The tree of plain values, and the tensors by file and name, of a verified checkpoint.

    Files whose tensors are `held` in memory are not read again.

    Raises:
        BrokenCheckpoint: A file has the right checksum and a wrong format.
    """
    compare_sizes(saved)
    tree = tree_in(saved)
    tensors = dict(held or {})
    for name in saved.manifest.files:
        is_read = name.removesuffix(TENSORS) in tensors
        if name.endswith(TENSORS) and not OF_RANK.fullmatch(name) and not is_read:
            with reading(saved.path, name):
                tensors[name.removesuffix(TENSORS)] = TensorFile(saved.path / name)
    for file in [each for each in tensors if f"{each}{FROZEN}" in tensors]:
        tensors[file] = Joined(tensors[file], tensors[f"{file}{FROZEN}"])
    return tree, tensors | piece_files(saved)


def infos_in(saved: CheckpointFiles) -> dict[str, dict[str, TensorInfo]]:
    """The types and shapes of all tensors, by the file in which one rank alone would have them.

    Raises:
        BrokenCheckpoint: A file has the right checksum and a wrong format.
    """
    found = {}
    for name in saved.manifest.files:
        if name.endswith(TENSORS) and not OF_RANK.fullmatch(name):
            with reading(saved.path, name):
                found[name.removesuffix(TENSORS)] = tensors_in(saved.path / name)
    for file in [each for each in found if f"{each}{FROZEN}" in found]:
        found[file] = found[f"{file}{FROZEN}"] | found[file]
    table = table_in(saved)
    return found | {file: {n: each.info for n, each in own.items()} for file, own in table.items()}


def piece_files(saved: CheckpointFiles) -> dict[str, TensorSource]:
    """The tensors that ranks hold in pieces, by the file in which a single rank would have them."""
    files = RankFiles(saved.path)
    return {file: PieceFile(file, grids, files) for file, grids in table_in(saved).items()}


def read_part(saved: CheckpointFiles, rank: int) -> tuple[Any, TensorSource | dict[str, Tensor]]:
    """The state of the run that one rank has saved, and its tensors; of a verified checkpoint.

    Raises:
        BrokenCheckpoint: A file has the right checksum and a wrong format.
    """
    own = rank_file(rank)
    part = tree_at(saved, f"{own}.json")
    if (name := f"{own}{TENSORS}") not in saved.manifest.files:
        return part, {}
    with reading(saved.path, name):
        return part, TensorFile(saved.path / name)


def sources(
    saved: CheckpointFiles, files: Collection[str], *, is_verified: bool = False
) -> dict[str, TensorSource]:
    """The tensors in the files of some objects; verifies the files, unless that is done already.

    Raises:
        BrokenCheckpoint: A file is missing or damaged.
    """
    if PIECES not in saved.manifest.files:
        beside = {f"{file}{FROZEN}{TENSORS}" for file in files} & saved.manifest.files.keys()
        if not is_verified:
            verify_files(saved, [*(f"{file}{TENSORS}" for file in files), *sorted(beside)])
        return {file: _source(saved, file) for file in files}
    if not is_verified:
        verify_files(saved, [PIECES])
    chosen = {file: grids for file, grids in table_in(saved).items() if file in files}
    if not is_verified:
        verify_files(saved, [f"{rank_file(rank)}{TENSORS}" for rank in Shares(chosen).ranks])
        check_pieces(saved)
    held = RankFiles(saved.path)
    return {file: PieceFile(file, chosen.get(file, {}), held) for file in files}


def _source(saved: CheckpointFiles, file: str) -> TensorSource:
    own, frozen = (saved.path / f"{file}{each}{TENSORS}" for each in ("", FROZEN))
    if frozen.name not in saved.manifest.files:
        return TensorFile(own)
    return Joined(TensorFile(own), TensorFile(frozen))

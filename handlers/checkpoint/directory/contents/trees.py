"""The plain values of a checkpoint: of the run, of a rank, and the table of pieces."""

from __future__ import annotations

import os
from typing import Any

from ....files import LARGEST_TEXT, regular, tree_of
from ...format import PIECES, TREE, Table, rank_file, reading, references, table_of_tree
from .checkpoint_files import CheckpointFiles


def tree_in(saved: CheckpointFiles) -> Any:
    """The tree of plain values of a checkpoint.

    Raises:
        BrokenCheckpoint: The tree is beyond a limit, or no run writes such a tree.
    """
    tree = tree_at(saved, TREE)
    with reading(saved.path, TREE):
        _refuse_repeated(tree)
    return tree


def part_tree(saved: CheckpointFiles) -> Any:
    """The state of the run that the first rank has saved; None for an export."""
    return tree_at(saved, f"{rank_file(0)}.json")["run"] if saved.manifest.holds_run else None


def table_in(saved: CheckpointFiles) -> Table:
    """The table of how tensors are cut into pieces; empty if no tensor is cut.

    Raises:
        BrokenCheckpoint: The table is beyond a limit, or no run writes such a table.
    """
    if PIECES not in saved.manifest.files:
        return {}
    tree = tree_at(saved, PIECES)
    with reading(saved.path, PIECES):
        return table_of_tree(tree, saved.manifest.world_size)


def tree_at(saved: CheckpointFiles, name: str) -> Any:
    """The values of one JSON file of a checkpoint."""
    with reading(saved.path, name), regular(saved.path / name) as file:
        size = os.fstat(file.fileno()).st_size  # read() allocates as many bytes as it is given
        return tree_of(file.read(min(size, LARGEST_TEXT) + 1))


def _refuse_repeated(tree: Any) -> None:
    """Refuse a tensor with two owners: no run writes it, and each owner would copy it."""
    owners = dict[tuple[str, str], int]()
    for number, each in enumerate(tree.get("objects", {}).values()):
        file = each["file"]
        for name in references(each["content"]):
            if owners.setdefault((file, name), number) != number:
                raise ValueError(f"names the tensor {name!r} twice, for two owners")

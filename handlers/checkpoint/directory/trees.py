"""The plain values of a checkpoint: its manifest, the run's, a rank's, and the table of pieces."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...files import LARGEST_TEXT, budget, regular, tree_of
from ..format import (
    MANIFEST,
    PIECES,
    TREE,
    BrokenCheckpoint,
    Manifest,
    Table,
    rank_file,
    reading,
    references,
    table_of_tree,
)

NAME = re.compile(r"iteration-\d{10,}(\.\d+)?", re.ASCII)
"""The names of checkpoints in a directory of them."""


@dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint on the disk: its directory, and its manifest, which has been read."""

    path: Path
    manifest: Manifest = field(repr=False)
    """When and why it was written, the metrics at that time, and the checksums of its files."""


def manifest_at(path: Path, name: str | None = None) -> Manifest:
    """The manifest of the checkpoint at `path`, whose name is to be `name`.

    Raises:
        BrokenCheckpoint: The manifest is missing, damaged, or that of another checkpoint.
    """
    with reading(path, MANIFEST):
        if path.is_symlink():
            raise BrokenCheckpoint("it is a link to a directory; name the directory itself", path)
        with regular(path / MANIFEST) as file:
            text = file.read(budget.LARGEST_MANIFEST + 1)
        try:
            if len(text) > budget.LARGEST_MANIFEST:
                raise ValueError(f"it has more than {budget.LARGEST_MANIFEST:,} bytes")
            manifest = Manifest.of_json(text)
        except ValueError as error:
            raise ValueError(f"cannot be used: {error}") from error
        name = path.name if name is None else name
        if NAME.fullmatch(name) and int(name[10:].split(".")[0]) != manifest.iteration:
            raise ValueError(f"is of iteration {manifest.iteration}: the directory was renamed")
    return manifest


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

"""The part of a sharded save that is the same from one save to the next, made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from hashlib import sha256
from json import dumps
from typing import Any

from torch import Tensor

from ....engine import ranks
from ....engine.modules import box_of, local
from ..format import Shares, Table, TensorInfo, table_as_tree
from .plan import Plan, Tensors
from .regions import is_sharded

Forms = dict[str, dict[str, tuple[Any, ...]]]
"""By file and name, what decides how a tensor is cut and who writes its pieces."""


class Layouts:
    """The layout of a run's saves, kept until a tensor comes, goes, or has another form."""

    def __init__(self) -> None:
        self._forms: Forms | None = None
        self._layout = Layout({}, {})

    def of(self, tensors: Tensors, is_the_same: Callable[[str, str], bool]) -> Layout:
        """How these tensors lie on the ranks; see `Plan` for what is the same on all of them."""
        forms: Forms = {}
        for file, named in tensors.items():
            forms[file] = {
                name: _sharded(each) or (is_the_same(file, name), *_plain(each))
                for name, each in named.items()
            }
        if forms != self._forms:
            _check_shards(tensors)
            self._layout, self._forms = Layout(Plan(is_the_same).table(tensors), tensors), forms
        return self._layout


class Layout:
    """The table of all pieces, the same on all ranks, and which of them are this rank's own."""

    def __init__(self, table: Table, tensors: Tensors) -> None:
        self.table = table
        held = [*Shares(table).of(ranks.rank())]
        self.infos: dict[str, TensorInfo] = {each.key: each.info for each in held}
        """What this rank's file has to hold, by the names of the pieces."""
        self._places = [(each.key, each.file, each.name) for each in held]

    @cached_property
    def tree(self) -> dict[str, Any]:
        """The table as JSON."""
        return table_as_tree(self.table)

    @cached_property
    def digest(self) -> str:
        """The same text on all ranks if their tables are the same."""
        return sha256(dumps(self.tree, sort_keys=True).encode()).hexdigest()

    def own(self, tensors: Tensors) -> dict[str, Tensor]:
        """This rank's pieces by their names in its file; they share the memory of its shards."""
        return {key: local(tensors[file][name]).detach() for key, file, name in self._places}


def _sharded(tensor: Any) -> tuple[Any, ...]:
    """The properties that decide how a distributed tensor is cut; empty for a plain tensor."""
    if not is_sharded(tensor):
        return ()
    return tensor.device_mesh, tensor.placements, *_plain(tensor)


def _plain(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape


def _check_shards(tensors: Tensors) -> None:
    """Check that each shard of this rank has the shape that its place in the mesh gives it.

    Raises:
        ValueError: The shard has another shape.
    """
    for file, named in tensors.items():
        for name, each in named.items():
            try:
                if is_sharded(each):
                    box_of(each)
            except ValueError as error:
                raise ValueError(f"cannot save {name!r} of {file!r}: {error}") from None

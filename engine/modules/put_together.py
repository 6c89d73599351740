"""Sharded tensors, put together on rank 0 one by one."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from math import prod
from typing import Any

import torch
from torch import Tensor

from .. import ranks
from .boxes import box_at, shape_of, slices
from .sharded import copy_part
from .tensors import is_spread, local

END = -1


@contextmanager
def put_together(
    tensors: Mapping[str, Tensor],
) -> Generator[Mapping[str, Tensor] | None, None, None]:
    """Give rank 0 the whole tensors in a `with` block; the other ranks get None after its block.

    A tensor is put together on the CPU when rank 0 looks it up, and is not kept: rank 0 needs
    memory for one whole tensor, and each other rank for its part. All ranks have to call this, with
    tensors of the same names; an error of one rank is raised on all ranks.
    """
    found = Together(tensors)
    if ranks.rank() == 0:
        try:
            yield found
        finally:
            ranks.agreed(END)
    else:
        found.serve()
        yield None


class Together(Mapping[str, Tensor]):
    """The whole tensors by name; only rank 0 looks them up, while the other ranks serve."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._names = list(tensors)

    def __getitem__(self, name: str) -> Tensor:
        """The whole tensor of this name, put together on the CPU if ranks hold parts of it.

        Raises:
            RuntimeError: A rank cannot send its part.
        """
        tensor = self._tensors[name]
        if not is_spread(tensor):
            return tensor
        ranks.agreed(self._names.index(name))
        try:
            whole = torch.empty(tensor.shape, dtype=tensor.dtype)
        except BaseException:
            ranks.any_rank(True)
            raise
        if ranks.any_rank(False):
            raise RuntimeError(f"another rank cannot send its part of {name!r}; its error says why")
        for source, place in _parts(tensor):
            if source == ranks.rank():
                copy_part(whole[place], local(tensor).detach())
            else:
                piece = torch.empty(whole[place].shape, dtype=whole.dtype)
                ranks.receive(piece, source)
                whole[place].copy_(piece)
        return whole

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def serve(self) -> None:
        """Send this rank's parts of the tensors that rank 0 asks for, until rank 0 is done."""
        raised: Exception | None = None
        while (number := int(ranks.agreed(END))) != END:
            tensor: Any = self._tensors[self._names[number]]
            part = None
            try:
                part = local(tensor).detach().cpu()
            except Exception as error:
                raised = error
            if not ranks.any_rank(part is None) and part is not None:
                for source, _ in _parts(tensor):
                    if source == ranks.rank():
                        ranks.send(part, to=0)
        if raised is not None:
            raise raised


def _parts(tensor: Any) -> Iterator[tuple[int, tuple[slice, ...]]]:
    """Pairs of a sending rank and its part of a tensor: one rank per replica, no empty parts."""
    mesh, placements = tensor.device_mesh, tensor.placements
    if not (mesh.mesh == 0).any():  # this rank's mesh replicates the mesh of rank 0
        return
    sizes = [
        1 if placement.is_replicate() else size
        for size, placement in zip(mesh.shape, placements, strict=True)
    ]
    for coordinate in product(*map(range, sizes)):
        box = box_at(tuple(tensor.shape), tuple(mesh.shape), tuple(placements), coordinate)
        if prod(shape_of(box)):
            yield int(mesh.mesh[coordinate]), slices(box)

"""The tensors of a module that lie in two files: the frozen ones have a file of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...format import TensorInfo
from .tensor_file import TensorSource

if TYPE_CHECKING:
    from torch import Tensor


class Joined(TensorSource):
    """The tensors of two sources; for a name that both have, the tensor of the first."""

    def __init__(self, first: TensorSource, second: TensorSource) -> None:
        self._of = dict.fromkeys(second, second) | dict.fromkeys(first, first)

    def __getitem__(self, name: str) -> Tensor:
        """The whole tensor, as a new one."""
        return self._of[name][name]

    def __contains__(self, name: object) -> bool:
        """True if there is a tensor of this name; the tensor is not read."""
        return name in self._of

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def info(self, name: str) -> TensorInfo:
        """The type and the shape of a tensor; its values are not read."""
        return self._of[name].info(name)

    def glance(self, name: str) -> Tensor:
        """A tensor for use at once: to look at, or to copy from."""
        return self._of[name].glance(name)

    def fill(self, name: str, begin: tuple[int, ...], into: Tensor) -> None:
        """Fill `into` with the part of a tensor that begins at these indices."""
        self._of[name].fill(name, begin, into)

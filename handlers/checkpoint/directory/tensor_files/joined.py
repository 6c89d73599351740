"""The tensors of a module that lie in two files: the frozen ones have a file of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...format import TensorInfo
from .tensor_file import TensorSource

if TYPE_CHECKING:
    from torch import Tensor


class Joined(TensorSource):
    """The tensors of two sources; of a name that both have, that of the first."""

    def __init__(self, first: TensorSource, second: TensorSource) -> None:
        self._of = dict.fromkeys(second, second) | dict.fromkeys(first, first)

    def __getitem__(self, name: str) -> Tensor:
        """A new tensor: the whole one."""
        return self._of[name][name]

    def __contains__(self, name: object) -> bool:
        """True if there is a tensor of this name, which is not read."""
        return name in self._of

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def info(self, name: str) -> TensorInfo:
        """The type and the shape of a tensor, which is not read."""
        return self._of[name].info(name)

    def glance(self, name: str) -> Tensor:
        """A tensor to look at, or to copy from at once."""
        return self._of[name].glance(name)

    def fill(self, name: str, begin: tuple[int, ...], into: Tensor) -> None:
        """Read the part that begins at these places into a tensor of its shape."""
        self._of[name].fill(name, begin, into)

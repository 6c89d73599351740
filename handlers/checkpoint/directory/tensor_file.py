"""The tensors of a `.safetensors` file, read one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..format import DTYPES, open_tensors

if TYPE_CHECKING:
    from torch import Tensor

MAPPED = 4 * 2**20
"""Bytes of tensors that are read before their file is opened anew."""


class TensorFile(Mapping[str, "Tensor"]):
    """The tensors of a file; each is read when it is looked up, and not kept.

    So a model is loaded weight by weight, without a second model in memory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()
        self._names = list(self._file.keys())

    def __getitem__(self, name: str) -> Tensor:
        """A new tensor with the values in the file."""
        if self._mapped > MAPPED:
            self._open()
        tensor: Tensor = self._file.get_tensor(name)
        if str(tensor.dtype) not in DTYPES:
            raise ValueError(f"has a tensor of {tensor.dtype}: {name!r}")
        self._mapped += tensor.nbytes
        return tensor.clone()  # the tensor itself is a view of the mapped file

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _open(self) -> None:
        # The pages of a mapped file count as this process's memory until the file is closed.
        self._file = open_tensors(self._path, "pt")
        self._mapped = 0

"""The tensors of a `.safetensors` file, read one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...format import DTYPES, TensorInfo, info_of, open_tensors

if TYPE_CHECKING:
    from torch import Tensor

MAPPED = 16 * 2**20
"""Bytes of tensors that are read before their file is opened anew."""


class TensorSource(Mapping[str, "Tensor"]):
    """Tensors of a checkpoint by name: each is read when it is looked up, and not kept.

    So a model is loaded weight by weight, without a second model in memory.
    """

    @abstractmethod
    def __contains__(self, name: object) -> bool:
        """True if there is a tensor of this name; the tensor is not read."""

    @abstractmethod
    def info(self, name: str) -> TensorInfo:
        """The type and the shape of a tensor; its values are not read."""

    def glance(self, name: str) -> Tensor:
        """A tensor for use at once, to look at or to copy from; it may be a view of the file."""
        return self[name]

    @abstractmethod
    def fill(self, name: str, begin: tuple[int, ...], into: Tensor) -> None:
        """Fill `into` with the part of a tensor that begins at these indices."""

    def read(self, name: str, box: Sequence[tuple[int, int]]) -> Tensor:
        """A new tensor with this range of each dimension; nothing else is read."""
        import torch

        kind = self.info(name).dtype
        if f"torch.{kind}" not in DTYPES:
            raise ValueError(f"has a tensor of {kind}: {name!r}")
        dtype = getattr(torch, kind)
        made = torch.empty([last - first for first, last in box], dtype=dtype, device="cpu")
        if made.numel():
            self.fill(name, tuple(first for first, _ in box), made)
        return made


class TensorInFile:
    """A tensor that stays in its file; to look up slices, one a dimension, reads that part.

    So each of several ranks reads its own part alone.
    """

    def __init__(self, source: TensorSource, name: str) -> None:
        self._source, self._name = source, name
        self.shape = source.info(name).shape

    def __getitem__(self, at: Sequence[slice]) -> Tensor:
        """This part, as a new tensor."""
        return self._source.read(self._name, [(each.start, each.stop) for each in at])

    def whole(self) -> Tensor:
        """The whole tensor, as a new one."""
        return self._source[self._name]


class TensorFile(TensorSource):
    """The tensors of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()
        self._names = dict.fromkeys(self._file.keys())

    def __getitem__(self, name: str) -> Tensor:
        """A new tensor with the values in the file."""
        return self.glance(name).clone()

    def glance(self, name: str) -> Tensor:
        """A view of the mapped file."""
        if name not in self._names:
            raise KeyError(name)
        if self._mapped > MAPPED:
            self._open()
        tensor: Tensor = self._file.get_tensor(name)
        if str(tensor.dtype) not in DTYPES:
            raise ValueError(f"has a tensor of {tensor.dtype}: {name!r}")
        self._mapped += tensor.nbytes
        return tensor

    def __contains__(self, name: object) -> bool:
        """True if there is a tensor of this name; the tensor is not read."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def info(self, name: str) -> TensorInfo:
        """The type and the shape of a tensor; its values are not read."""
        return info_of(self._file.get_slice(name))

    def fill(self, name: str, begin: tuple[int, ...], into: Tensor) -> None:
        """Fill `into` with the part of a tensor that begins at these indices."""
        if self._mapped > MAPPED:
            self._open()
        part: Any = self._file.get_slice(name)
        if begin:
            at = zip(begin, into.shape, strict=True)
            part = part[tuple(slice(place, place + size) for place, size in at)]
        else:  # a single number has no slices
            part = self._file.get_tensor(name)
        if part.dtype != into.dtype or part.shape != into.shape:
            raise ValueError(f"has another type or shape than it should: {name!r}")
        self._mapped += into.nbytes
        into.copy_(part)

    def _open(self) -> None:
        # The pages of a mapped file count as this process's memory until the file is closed.
        self._file = open_tensors(self._path, "pt")
        self._mapped = 0

"""A copy of a checkpoint in memory: the run continues while a thread writes the copy."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress

import torch
from torch import Tensor

from ...files import text_of
from ..format import TENSORS, Payload, layout, needing_memory
from .take import Snapshot

WIPE_ON_FORK = 18
"""Linux's MADV_WIPEONFORK: a forked process finds zeros in this memory.

If workers shared the pages, the next save would first copy each of them. If the pages were absent
in workers (MADV_DONTFORK), a worker that frees this object would free what lies at the same address
by then.
"""

WITHOUT_A_COPY = (
    ". With background=False nothing is copied: the run waits while its own memory is written"
)


class Staging:
    """A copy of a run's snapshot in memory that each save uses again."""

    def __init__(self) -> None:
        self._buffers: dict[str, FileBuffer] = {}

    def copy(self, snapshot: Snapshot) -> dict[str, Payload]:
        """The files of a copy; the run may change afterwards, and the next copy replaces it.

        Raises:
            OSError: Memory has run out; all of it that earlier copies took is given back.
        """
        wanted = snapshot.tensors
        self._buffers = {
            file: buffer
            for file, buffer in self._buffers.items()
            if file in wanted and buffer.fits(wanted[file])
        }
        try:
            for file, tensors in wanted.items():
                self._copy(file, tensors)
        except BaseException:
            self._buffers.clear()
            raise
        buffers = self._buffers.items()
        files = {f"{file}{TENSORS}": Payload.of(buffer.content) for file, buffer in buffers}
        return files | _trees(snapshot)

    def _copy(self, file: str, tensors: Mapping[str, Tensor]) -> None:
        size = sum(tensor.nbytes for tensor in tensors.values())
        with needing_memory(f"copy {file}{TENSORS}, {size:,} bytes", WITHOUT_A_COPY):
            if file not in self._buffers:
                self._buffers[file] = FileBuffer(tensors)
            self._buffers[file].fill(tensors)


def streamed(
    snapshot: Snapshot, whole: Mapping[str, Mapping[str, Tensor]] | None = None
) -> dict[str, Payload]:
    """The files, written straight from the run's memory: for a run that waits meanwhile.

    Args:
        snapshot: What to write.
        whole: By file, the tensors to write where those of the snapshot are sharded.
    """
    values = snapshot.tensors if whole is None else whole
    files = {
        f"{file}{TENSORS}": _streamed(tensors, values[file])
        for file, tensors in snapshot.tensors.items()
    }
    return files | _trees(snapshot)


class FileBuffer:
    """The bytes of a `.safetensors` file in memory, with a view of each tensor's place.

    A buffer is made once and takes the values of like tensors again and again.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._form = _form(tensors)
        header, places = layout(tensors)
        size = len(header) + sum(tensor.nbytes for tensor in tensors.values())
        memory = _memory(size, pinned=any(tensor.is_cuda for tensor in tensors.values()))
        memory[: len(header)] = torch.frombuffer(bytearray(header), dtype=torch.uint8)
        self._views = {
            name: memory[place : place + tensors[name].nbytes]
            .view(tensors[name].dtype)
            .view(tensors[name].shape)
            for name, place in places.items()
        }
        self.content = memory.numpy().data

    def fits(self, tensors: Mapping[str, Tensor]) -> bool:
        """True if these tensors have the names, types and shapes that the file is laid out for."""
        return _form(tensors) == self._form

    def fill(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the values of all tensors; when this returns, they may change."""
        for name, view in self._views.items():
            view.copy_(tensors[name], non_blocking=tensors[name].is_cuda)
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()  # on which the copies are


def _trees(snapshot: Snapshot) -> dict[str, Payload]:
    return {file: Payload.of(text_of(tree).encode()) for file, tree in snapshot.trees.items()}


def _streamed(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Payload:
    header, places = layout(tensors)

    def pieces() -> Iterator[memoryview]:
        yield memoryview(header)
        for name in places:
            plain = values[name].resolve_conj().resolve_neg().cpu().contiguous()
            if plain.nbytes:
                # view() needs the strides of a new tensor; contiguous() leaves a single number's.
                flat = plain.as_strided((plain.numel(),), (1,))
                yield flat.view(torch.uint8).numpy().data

    return Payload(len(header) + sum(tensor.nbytes for tensor in tensors.values()), pieces)


def _form(tensors: Mapping[str, Tensor]) -> list[object]:
    return [(name, each.dtype, each.shape, each.is_cuda) for name, each in tensors.items()]


def _memory(size: int, pinned: bool) -> Tensor:
    if pinned:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    kind = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = mmap.mmap(-1, size, **kind)
    if sys.platform == "linux":
        with suppress(OSError):  # a kernel from before 4.14
            memory.madvise(WIPE_ON_FORK)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # each copy is a tenth faster, the first one slower
    return torch.frombuffer(memory, dtype=torch.uint8)

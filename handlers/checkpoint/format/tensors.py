"""`.safetensors` files in memory."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ..directory.files import Source

NAMES = {
    getattr(torch, name): written
    for name, written in {
        **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"},
        **{"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "bool": "BOOL"},
        **{"uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "complex64": "C64"},
        **{"float8_e4m3fn": "F8_E4M3", "float8_e4m3fnuz": "F8_E4M3FNUZ"},
        **{"float8_e5m2": "F8_E5M2", "float8_e5m2fnuz": "F8_E5M2FNUZ"},
    }.items()
    if hasattr(torch, name)
}
"""What the format calls each type."""

ALIGNMENT = 64
LARGEST_HEADER = 16 * 2**20
"""Bytes that say what tensors a file has: a hundred or two for each of them."""


class Image:
    """The bytes of a file, header and data, with a view into them for each tensor.

    It is made once and takes the values of like tensors again and again.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        """Lay out a file for tensors like these."""
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
        """True if these have the names, types and shapes that the file is laid out for."""
        return _form(tensors) == self._form

    def take(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the values of all tensors; when this returns, they may change."""
        for name, view in self._views.items():
            view.copy_(tensors[name], non_blocking=tensors[name].is_cuda)
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            torch.cuda.synchronize(device)


def streamed(tensors: Mapping[str, Tensor]) -> Source:
    """The file of these tensors out of their own memory: for who does not change them meanwhile."""
    header, places = layout(tensors)

    def pieces() -> Iterator[memoryview]:
        yield memoryview(header)
        for name in places:
            plain = tensors[name].resolve_conj().resolve_neg().cpu().contiguous()
            if plain.nbytes:
                # One number counts as contiguous whatever its stride, which view() minds.
                flat = plain.as_strided((plain.numel(),), (1,))
                yield flat.view(torch.uint8).numpy().data

    return Source(len(header) + sum(tensor.nbytes for tensor in tensors.values()), pieces)


def layout(tensors: Mapping[str, Tensor]) -> tuple[bytes, dict[str, int]]:
    """The header of the file, and where in the file each tensor begins, in that order.

    Wide types come first, so that each number lies at a multiple of its own width.

    Raises:
        ValueError: The header is larger than one that would be read.
    """
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begins, end = dict[str, int](), 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].itemsize, name)):
        tensor = tensors[name]
        begins[name], end = end, end + tensor.nbytes
        entries[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begins[name], end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    if len(text) > LARGEST_HEADER:
        raise ValueError(
            f"{len(tensors)} tensors, such as {next(iter(tensors))!r}, are too many for one file: "
            f"their names and shapes take {len(text)} bytes, and at most {LARGEST_HEADER} are "
            "read. Give them shorter names, or put small tensors together into larger ones"
        )
    header = len(text).to_bytes(8, "little") + text
    return header, {name: len(header) + begin for name, begin in begins.items()}


def _form(tensors: Mapping[str, Tensor]) -> list[object]:
    return [(name, each.dtype, each.shape, each.is_cuda) for name, each in tensors.items()]


def _memory(size: int, pinned: bool) -> Tensor:
    if pinned:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    kind = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = mmap.mmap(-1, size, **kind)
    if hasattr(mmap, "MADV_DONTFORK"):
        # A loader's worker that was forked would have to be given a copy before the next save.
        memory.madvise(mmap.MADV_DONTFORK)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # each copy is a tenth faster, the first one slower
    return torch.frombuffer(memory, dtype=torch.uint8)

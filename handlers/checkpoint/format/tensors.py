"""The `.safetensors` format: its types, the header that is written, and the header that is read.

Nothing here needs torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from ...files import LARGEST_HEADER, regular, tree_of

if TYPE_CHECKING:
    from torch import Tensor

TENSORS = ".safetensors"
"""The ending of the names of such files."""
DTYPES = {
    f"torch.{name}": code
    for name, code in {
        **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"},
        **{"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "bool": "BOOL"},
        **{"uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "complex64": "C64"},
        **{"float8_e4m3fn": "F8_E4M3", "float8_e4m3fnuz": "F8_E4M3FNUZ"},
        **{"float8_e5m2": "F8_E5M2", "float8_e5m2fnuz": "F8_E5M2FNUZ"},
    }.items()
}
"""The types that a file can hold, as torch prints them, with the code of each in the file."""

NAMES = {code: name.removeprefix("torch.") for name, code in DTYPES.items()}
ALIGNMENT = 64


@dataclass(frozen=True)
class Payload:
    """The bytes to write to a file; each call of `pieces` gives them again, for a new attempt."""

    size: int
    pieces: Callable[[], Iterable[memoryview]]

    @classmethod
    def of(cls, content: bytes | memoryview) -> Payload:
        """All bytes in one piece."""
        return cls(len(content), lambda: [memoryview(content)])


@dataclass(frozen=True)
class TensorInfo:
    """The type and the shape of a tensor in a file."""

    dtype: str
    """As torch calls it: `float32`."""
    shape: tuple[int, ...]

    @property
    def numbers(self) -> int:
        """How many numbers the tensor holds."""
        return prod(self.shape)

    @property
    def size(self) -> int:
        """The bytes of the tensor; the first digits of its type are the bits of a number."""
        bits = re.search(r"\d+", self.dtype)
        return self.numbers * int(bits[0] if bits else 8) // 8


def header_of(tensors: Mapping[str, Tensor]) -> tuple[bytes, dict[str, int]]:
    """The header of a file, and where in the file each tensor begins, in that order.

    Wide types come first, so that each number lies at a multiple of its own width.
    """
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begins, end = dict[str, int](), 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].itemsize, name)):
        tensor = tensors[name]
        begins[name], end = end, end + tensor.nbytes
        entries[name] = {
            "dtype": DTYPES[str(tensor.dtype)],
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


def stream_of(forms: Mapping[str, Tensor], value_of: Callable[[str], Tensor]) -> Payload:
    """A `.safetensors` file of tensors of these forms, whose values are asked for one by one."""
    import torch

    header, places = header_of(forms)

    def pieces() -> Iterator[memoryview]:
        yield memoryview(header)
        for name in places:
            plain = value_of(name).resolve_conj().resolve_neg().cpu().contiguous()
            if plain.nbytes:
                # view() needs the strides of a new tensor; contiguous() leaves a single number's.
                flat = plain.as_strided((plain.numel(),), (1,))
                yield flat.view(torch.uint8).numpy().data

    return Payload(len(header) + sum(each.nbytes for each in forms.values()), pieces)


def open_tensors(path: Path, framework: str) -> Any:
    """Open a `.safetensors` file with the library, after checking the size of its header."""
    with regular(path) as file:
        size = int.from_bytes(file.read(8), "little")
        try:
            if size > LARGEST_HEADER:
                raise ValueError(f"a header of {size} bytes; at most {LARGEST_HEADER} are read")
            return safe_open(path, framework)
        except (SafetensorError, ValueError) as error:
            raise ValueError(f"{path.name} is not a .safetensors file: {error}") from error


def tensors_in(file: Path) -> dict[str, TensorInfo]:
    """The tensors of a file, by name; only the header is read."""
    with open_tensors(file, "numpy") as opened:
        return {name: info_of(opened.get_slice(name)) for name in opened.keys()}  # noqa: SIM118


def tensors_in_order(file: Path) -> tuple[int, dict[str, TensorInfo]]:
    """The offset of the first tensor in a file, and its tensors in the order of the file."""
    found = tensors_in(file)  # the library refuses gaps between tensors
    with regular(file) as opened:
        size = int.from_bytes(opened.read(8), "little")
        entries = tree_of(opened.read(size))
    order = sorted(found, key=lambda name: (entries[name]["data_offsets"], name))
    return 8 + size, {name: found[name] for name in order}


def info_of(found: Any) -> TensorInfo:
    """The type and the shape of a tensor, from the slice that the library gives."""
    code, shape = found.get_dtype(), found.get_shape()
    kinds = {"F": "float", "BF": "bfloat", "I": "int", "U": "uint", "C": "complex"}
    kind, bits, variant = re.fullmatch(r"([A-Z]+)(\d*)(.*)", code).groups()  # type: ignore[union-attr]
    dtype = NAMES.get(code, f"{kinds.get(kind, kind.lower())}{bits}{variant.lower()}")
    return TensorInfo(dtype, tuple(shape))

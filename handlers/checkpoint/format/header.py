"""What a file of tensors says of itself, read without torch and without any tensor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open

KINDS = {"F": "float", "BF": "bfloat", "I": "int", "U": "uint", "C": "complex"}


@dataclass(frozen=True)
class Description:
    """The type and the shape of a tensor in a file."""

    dtype: str
    """As torch calls it: `float32`."""
    shape: tuple[int, ...]
    size: int
    """In bytes."""

    @property
    def numbers(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


def tensors_in(file: Path) -> dict[str, Description]:
    """The tensors of a file, by name.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no such file.
    """
    try:
        with safe_open(file, framework="numpy") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {
                name: _description(each.get_dtype(), each.get_shape())
                for name, each in slices.items()
            }
    except SafetensorError as error:
        raise ValueError(f"{file.name} is no file of tensors: {error}") from error


def _description(code: str, shape: list[int]) -> Description:
    kind, bits, variant = re.fullmatch(r"([A-Z]+)(\d*)(.*)", code).groups()  # type: ignore[union-attr]
    dtype = f"{KINDS.get(kind, kind.lower())}{bits}{variant.lower()}"
    return Description(dtype, tuple(shape), prod(shape) * int(bits or 8) // 8)

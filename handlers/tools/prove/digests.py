"""Checksums of values by where they are, to tell if two runs had the same bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from ....engine.state import capture_generators

PLAIN = (bool, int, float, str, bytes, type(None))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values inside nested containers, with where they are."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {item.name: getattr(value, item.name) for item in fields(value)}
    elif isinstance(value, Tensor) and value.is_nested:
        value = value.unbind()
    if isinstance(value, Mapping):
        inner = [*value.items()]
    elif isinstance(value, list | tuple) and any(not isinstance(e, PLAIN) for e in value):
        inner = [*enumerate(value)]
    else:
        yield path, value
        return
    for key, each in inner:
        yield from leaves(each, f"{path}.{key}" if path else str(key))


def digest(value: Any) -> str:
    """The checksum of a value's bits; for a short plain value, the value itself."""
    if isinstance(value, Tensor):
        held: Any = [each.view(torch.uint8).numpy() for each in dense_parts(value)]
        held = [f"{value.dtype}{tuple(value.shape)}".encode(), *held]
    elif is_array(value) and not getattr(value.dtype, "hasobject", False):
        held = [f"{value.dtype}{getattr(value, 'shape', '')}".encode(), value.tobytes()]
    else:
        value = sorted(map(repr, value)) if isinstance(value, set | frozenset) else value
        held = [(text := repr(value.tolist() if is_array(value) else value)).encode()]
        if isinstance(value, (*PLAIN, list, tuple)) and len(text) < 40:
            return text
    return blake2b(b"".join(held), digest_size=8).hexdigest()


def dense_parts(tensor: Any) -> list[Tensor]:
    """All that a tensor holds on this rank, in vectors on the CPU; its values are the last one."""
    if flatten := getattr(tensor, "__tensor_flatten__", None):  # such as a DTensor
        held = [getattr(tensor, name) for name in flatten()[0]][::-1]
        held = [part for part in held if isinstance(part, torch.Tensor)]  # and no mesh
    elif tensor.layout is not torch.strided:
        whole = tensor.detach().to_sparse_coo().coalesce()
        held = [whole.indices(), whole.values()]
    else:
        plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        # Not a reshape: that of a single number that was expanded, as of a sum, keeps its stride 0.
        return [plain.as_strided((plain.numel(),), (1,))]
    return [part for each in held for part in dense_parts(each)]


def generator_digests() -> dict[str, str]:
    """Checksums of the global generators of random numbers."""
    rng = capture_generators()
    found = {"random": rng.python, "torch": rng.torch, "numpy.random": rng.numpy}
    found |= {f"torch.{k}": each for k, each in rng.devices.items() if isinstance(each, list)}
    return {name: digest(each) for name, each in found.items() if each is not None}


def is_array(value: Any) -> bool:
    """True for NumPy's arrays and numbers."""
    return hasattr(value, "dtype") and hasattr(value, "tobytes")

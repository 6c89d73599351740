"""Writes a file of tensors that are read from others, one tensor in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...format import Payload, layout
from .tensor_file import TensorSource

if TYPE_CHECKING:
    from torch import Tensor


def payload_of(source: TensorSource, names: Mapping[str, str]) -> Payload:
    """A `.safetensors` file of these tensors; `names` maps each name in it to the source's name."""
    import torch

    def form(name: str) -> Tensor:
        info = source.info(name)
        return torch.empty(info.shape, dtype=getattr(torch, info.dtype), device="meta")

    forms = {name: form(inside) for name, inside in names.items()}
    header, places = layout(forms)

    def pieces() -> Iterator[memoryview]:
        yield memoryview(header)
        for name in places:
            tensor = source[names[name]].reshape(-1)
            if tensor.numel():
                yield tensor.view(torch.uint8).numpy().data

    return Payload(len(header) + sum(each.nbytes for each in forms.values()), pieces)

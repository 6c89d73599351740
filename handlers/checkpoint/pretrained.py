"""What Hugging Face's `from_pretrained` reads, written by the model's own `save_pretrained`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import Module

from ...engine.modules import unwrap
from ..files import text_of
from .directory import scratch
from .format import TENSORS, TREE, Payload, tensors_in


def check_pretrained(name: str, own: Any) -> None:
    """Refuse an object that has no `save_pretrained`."""
    inner = unwrap(own) if isinstance(own, Module) else own
    if not hasattr(inner, "save_pretrained"):
        raise ValueError(
            f"Export(object={name!r}, pretrained=True): the object is a {type(inner).__name__}, "
            f"which has no save_pretrained(); leave pretrained out to write {name}.safetensors"
        )


def pretrained(
    directory: Path, name: str, module: Any, whole: Mapping[str, Tensor] | None = None
) -> dict[str, Payload]:
    """The files that `save_pretrained` writes, and the tree of plain values of an export.

    The files are written to a temporary place in `directory`, and then read into memory. `whole`
    are the weights of a sharded model.
    """
    with scratch(directory) as place:
        model: Any = unwrap(module)
        if whole is None:
            model.save_pretrained(place)
        else:
            model.save_pretrained(place, state_dict=whole)
        paths = sorted(path for path in place.iterdir() if path.is_file())
        files = {path.name: Payload.of(path.read_bytes()) for path in paths}
        weights = [path for path in paths if path.name.endswith(TENSORS)]
        objects = {name: _content(weights[0])} if len(weights) == 1 else {}
    return files | {TREE: Payload.of(text_of({"objects": objects}).encode())}


def _content(path: Path) -> dict[str, Any]:
    """The entry in an export's tree for an object whose tensors are in one file."""
    names = tensors_in(path)
    return {"file": path.stem, "content": {each: {"!tensor": each} for each in names}}

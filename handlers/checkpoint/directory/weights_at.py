"""The weights of an object at a path, whoever wrote them there.

The only file that calls `torch.load`, with `weights_only=True`: it runs nothing that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..format import TENSORS
from .catalogue import checkpoints
from .tensor_file import TensorFile


def weights_at(path: Path, object: str) -> Mapping[str, Any]:
    """What a file, a checkpoint, or a directory of either holds; see `load_matching`.

    A file of `torch.save` may hold several objects.

    Raises:
        FileNotFoundError: The path does not exist, or the directory has no weights.
    """
    if not path.exists():
        raise FileNotFoundError(f"{str(path)!r} does not exist; name a file or a checkpoint")
    if not path.is_dir():
        if path.suffix == TENSORS:
            return dict(TensorFile(path.resolve()))
        import torch

        loaded: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return loaded
    beside = (each for each in checkpoints(path.parent) if each.path.name == path.name)
    if saved := next(beside, None) or checkpoints(path).latest():
        return dict(saved.state_dict(object))
    if (file := path / f"{object}{TENSORS}").exists():
        return dict(TensorFile(file.resolve()))  # a link, in the caches of Hugging Face's
    raise FileNotFoundError(f"{path} holds no checkpoint and no {object}{TENSORS}")

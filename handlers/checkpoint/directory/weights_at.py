"""The weights of an object at a path, whoever wrote them there.

The only file that calls `torch.load`, with `weights_only=True`: it runs nothing that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, is_zipfile

from ...files import printable_lines, regular
from ..format import TENSORS
from .catalogue import checkpoints
from .tensor_files import TensorFile


def weights_at(path: Path, object: str) -> Mapping[str, Any]:
    """What a file, a checkpoint, or a directory of either holds; see `load_matching`.

    A file of `torch.save` may hold several objects.

    Raises:
        FileNotFoundError: The path does not exist, or the directory has no weights.
        OSError: The path is no file, or cannot be read.
        ValueError: The file is neither of `.safetensors` nor of `torch.save`.
    """
    if not path.exists():
        raise FileNotFoundError(f"{str(path)!r} does not exist; name a file or a checkpoint")
    if not path.is_dir():
        if path.suffix == TENSORS:
            return dict(TensorFile(path.resolve()))
        return _loaded(path)
    beside = (each for each in checkpoints(path.parent) if each.path.name == path.name)
    if saved := next(beside, None) or checkpoints(path).latest():
        return dict(saved.state_dict(object))
    if (file := path / f"{object}{TENSORS}").exists():
        return dict(TensorFile(file.resolve()))  # a link, in the caches of Hugging Face's
    raise FileNotFoundError(f"{path} holds no checkpoint and no {object}{TENSORS}")


def _loaded(path: Path) -> Mapping[str, Any]:
    import torch

    with regular(path.resolve()) as file:
        try:
            if is_zipfile(file):
                with ZipFile(file) as archive:
                    if any(each.compress_type != ZIP_STORED for each in archive.infolist()):
                        raise ValueError("it is compressed, as torch.save compresses nothing")
            file.seek(0)
            loaded: Mapping[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        except OSError:
            raise
        except Exception as error:
            raise ValueError(
                f"{path} cannot be read as a file of torch.save: {printable_lines(str(error))}"
            ) from error
    return loaded

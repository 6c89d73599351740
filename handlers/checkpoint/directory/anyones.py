"""The weights of an object at a path, whoever wrote them there.

`torch.load` is called with `weights_only=True`: it runs nothing that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, is_zipfile

from ...files import printable_lines, regular
from ..format import FROZEN, TENSORS
from .catalogue import NAME, chosen, find, saved_at
from .contents import stored_in
from .saved import Saved, read_weights

Reader = Callable[[Path, str], Mapping[str, Any] | None]


def weights_at(
    path: Path | Saved, object: str, *, together: bool = False, other: Reader | None = None
) -> Mapping[str, Any]:
    """What a file, a checkpoint, or a directory of either holds; see `load_matching`.

    A file of `torch.save` may hold several objects. Other tensors are `StoredTensor`s, which stay
    in their files until they are read.

    Args:
        path: The file, the checkpoint or the directory.
        object: Whose weights, where a checkpoint or a directory has those of several.
        together: True if all ranks call this, to verify a checkpoint by parts.
        other: Reads directories of another library; None for one that it does not know.

    Raises:
        FileNotFoundError: The path does not exist, or the directory has no weights.
        OSError: The path is no file, or cannot be read.
        ValueError: The file is neither of `.safetensors` nor of `torch.save`.
    """
    if isinstance(path, Path):
        if not path.exists():
            raise FileNotFoundError(f"{str(path)!r} does not exist; name a file or a checkpoint")
        if not path.is_dir():
            return _in_file(path)
        if other is not None and (found := other(path, object)) is not None:
            return found
    if isinstance(path, Saved):
        path = path.path
    if not together and NAME.fullmatch(path.absolute().name):
        return read_weights(saved_at(path), object, is_verified=False)

    saved = chosen(partial(find, path)) if together else find(path)
    if saved is not None:
        return read_weights(saved, object, is_verified=True)
    if (file := path / f"{object}{TENSORS}").exists():
        return stored_in(file.resolve())  # resolved, since Hugging Face's caches hold links
    raise FileNotFoundError(f"{path} holds no checkpoint and no {object}{TENSORS}")


def _in_file(path: Path) -> Mapping[str, Any]:
    if path.suffix == TENSORS:
        own, frozen = stored_in(path.resolve()), path.with_suffix(f"{FROZEN}{TENSORS}")
        return stored_in(frozen) | own if frozen.exists() else own
    import torch

    with regular(path.resolve()) as file:
        try:
            if is_mapped := is_zipfile(file):
                with ZipFile(file) as archive:
                    if any(each.compress_type != ZIP_STORED for each in archive.infolist()):
                        raise ValueError("it is compressed, as torch.save compresses nothing")
            file.seek(0)
            # A mapped file is read where a tensor is accessed, so a rank reads its own parts alone.
            source: Any = path if is_mapped else file
            loaded = torch.load(source, map_location="cpu", weights_only=True, mmap=is_mapped)
        except OSError:
            raise
        except Exception as error:
            raise ValueError(
                f"{path} cannot be read as a file of torch.save: {printable_lines(str(error))}"
            ) from error
    if not isinstance(loaded, Mapping):
        raise ValueError(
            f"{path} holds a {type(loaded).__name__}; it needs a state dict, or a dict with one, "
            "such as torch.save(model.state_dict(), path) writes"
        )
    return loaded

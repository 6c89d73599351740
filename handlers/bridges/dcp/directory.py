"""A directory of `torch.distributed.checkpoint` (DCP): its tensors and values, by name.

The only file that knows pickle, which a `.metadata` is. It is read with the few instructions and
classes that torch's writer uses, and none of these classes is called: they become `_Record`s.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise, product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from zipfile import ZIP_STORED, ZipFile

from ...checkpoint.directory import OpenFiles, StoredTensor
from ...checkpoint.format import DTYPES, TensorInfo, reading
from ...files import budget, regular, size_of

if TYPE_CHECKING:
    from torch import Tensor

METADATA = ".metadata"
MOST_CUT = 8
"""The most dimensions along which the pieces of a tensor may be cut."""
CODES = """
    PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 SHORT_BINUNICODE
    BINUNICODE GLOBAL STACK_GLOBAL NEWOBJ REDUCE MEMOIZE BINGET LONG_BINGET BINPUT LONG_BINPUT
    EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 SETITEM SETITEMS EMPTY_LIST APPEND APPENDS
"""
RECORDS = """
    Metadata TensorStorageMetadata ChunkStorageMetadata TensorProperties MetadataIndex StorageMeta
    _StorageInfo _get_layout _MEM_FORMAT_ENCODING MEM_FORMAT_ENCODING PosixPath
"""
PYTHONS = pickle._Unpickler  # pyright: ignore  # the one in C fills memory for a large number
BY_CODE = PYTHONS.dispatch
TAKEN = {code: BY_CODE[code] for code in (getattr(pickle, n)[0] for n in CODES.split())}


class _Record:
    """What an instance of a class was pickled with."""

    def __init__(self, *_: Any) -> None:
        self.state: Any = {}


class _Value(_Record):
    """The `BytesStorageMetadata` of what is no tensor."""


class _Keyed(dict[Any, Any]):
    """A dict of names and records: the hash of nested tuples could take for ever."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, str | _Record):
            raise ValueError("has keys that are no names")
        super().__setitem__(key, value)


KNOWN = dict.fromkeys(RECORDS.split(), _Record) | {"BytesStorageMetadata": _Value}


class _Reader(PYTHONS):
    stack: list[Any]
    append: Any

    def find_class(self, module: str, name: str) -> Any:
        if name in KNOWN:
            return KNOWN[name]
        if module == "torch" and (name == "Size" or f"torch.{name}" in DTYPES):
            return tuple if name == "Size" else name
        raise ValueError(f"names {module}.{name}, which torch's writer does not")

    def _build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Record):
            raise ValueError("sets attributes of what has none")
        self.stack[-1].state = state

    def _dict(self) -> None:
        self.append(_Keyed())

    dispatch: ClassVar[Any] = TAKEN | {pickle.BUILD[0]: _build, pickle.EMPTY_DICT[0]: _dict}


@dataclass(frozen=True)
class _Piece:
    """A part of a tensor, or a value, and where it lies."""

    file: str
    offset: int
    length: int
    begin: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()


class DCPDirectory(OpenFiles):
    """The tensors of a DCP directory, which stay in their files, and its values.

    Raises:
        BrokenCheckpoint: The directory is incomplete, hostile, or not as torch writes it.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.tensors: dict[str, StoredTensor] = {}
        self._pieces: dict[str, list[_Piece]] = {}
        self._roots: dict[str, Any] = {}
        """By name: the key of the saved state dict under which it was."""
        with reading(directory, METADATA):
            with regular(directory / METADATA) as file:
                text = file.read(budget.LARGEST_METADATA + 1)
            if len(text) > budget.LARGEST_METADATA:
                raise ValueError(f"has more than {budget.LARGEST_METADATA:,} bytes")
            root = _Reader(BytesIO(text)).load().state
            stored = {_index(key.state): e.state for key, e in root["storage_data"].items()}
            paths = root.get("planner_data") or {}
            for name, each in root["state_dict_metadata"].items():
                path: Any = paths[name] if paths else ()
                if path and ".".join(map(str, path)) != name:
                    raise ValueError(f"has other keys for {name!r} than its name")
                self._roots[name] = path[0] if len(path) > 1 else ""
                self._add(name, each, stored)
            places = sorted((e.file, e.offset, e.length) for o in self._pieces.values() for e in o)
            for (own, first, length), (other, second, _) in pairwise(places):
                if own == other and second < first + length:
                    raise ValueError(f"names some bytes of {own} twice")
        ends = {name: offset + length for name, offset, length in places}
        for name, end in ends.items():
            with reading(directory, name):
                if (size := size_of(directory / name)) < end:
                    raise ValueError(f"has {size:,} bytes, and {METADATA} needs {end:,} of it")

    def _add(self, name: str, given: _Record, stored: Mapping[Any, Mapping[str, Any]]) -> None:
        if isinstance(given, _Value):
            self._pieces[name] = [_piece(stored[_index({"fqn": name})])]
            return
        dtype, shape, pieces = given.state["properties"].state[0], _sizes(given.state["size"]), []
        if not isinstance(dtype, str):
            raise ValueError(f"has no type for {name!r}")
        for chunk in given.state["chunks"]:
            begin, sizes = _sizes(chunk.state["offsets"]), _sizes(chunk.state["sizes"])
            if any(a + b > c for a, b, c in zip(begin, sizes, shape, strict=True)):
                raise ValueError(f"has a piece outside of {name!r}")
            pieces.append(_piece(stored[_index({"fqn": name, "offset": begin})], begin, sizes))
        if not _covers_once(shape, pieces):
            raise ValueError(f"has pieces that are not the whole of {name!r}")
        self._pieces[name] = pieces
        self.tensors[name] = StoredTensor(TensorInfo(dtype, shape), self, "", name)

    def names(self, key: str) -> dict[str, str]:
        """The names of what was under a key of the saved state dict, by the rest of the name.

        With an empty key: of weights that were saved without one, as torchtitan does.
        """
        prefix = f"{key}." if key else ""
        own = [n for n, root in self._roots.items() if root == key and n.startswith(prefix)]
        if key and not own:  # the names were joined before torch's writer had them
            own = [name for name in self._roots if name.startswith(prefix)]
        return {name[len(prefix) :]: name for name in own}

    def value(self, name: str) -> Any:
        """A tensor or another value; of a pickle, only what `weights_only=True` takes."""
        if name in self.tensors:
            return self.tensors[name].read()
        return self._read(self._pieces[name][0])

    def fill(self, into: Tensor, file: str, name: str, begin: Sequence[int]) -> None:
        """Fill `into` with the part of a tensor that begins at these indices."""
        for piece in self._pieces[name]:
            both = zip(begin, into.shape, piece.begin, piece.shape, strict=True)
            common = [(max(a, c), min(a + b, c + d)) for a, b, c, d in both]
            if all(first < last for first, last in common):
                found = self._read(piece)
                with reading(self._directory, piece.file):
                    form = f"torch.{self.tensors[name].info.dtype}", piece.shape
                    if (str(found.dtype), tuple(found.shape)) != form:
                        raise ValueError(f"has {name!r} in another form than {METADATA} says")
                    inside, target = (
                        tuple(slice(a - o, b - o) for (a, b), o in zip(common, origin, strict=True))
                        for origin in (piece.begin, begin)
                    )
                    into[target].copy_(found[inside])

    def _read(self, piece: _Piece) -> Any:
        import torch

        with reading(self._directory, piece.file):
            with regular(self._directory / piece.file) as file:
                file.seek(piece.offset)
                content = BytesIO(file.read(piece.length))
            with ZipFile(content) as archive:
                if any(each.compress_type != ZIP_STORED for each in archive.infolist()):
                    raise ValueError("is compressed, as torch.save compresses nothing")
                if damaged := archive.testzip():
                    raise ValueError(f"is damaged: {damaged} has another checksum")
            content.seek(0)
            return torch.load(content, map_location="cpu", weights_only=True)


def _covers_once(shape: tuple[int, ...], pieces: Sequence[_Piece]) -> bool:
    """True if each number of a tensor is in one of the pieces, and in no other.

    Corners, counted with signs that alternate, cancel where pieces meet; those of the whole stay.
    """
    cut = [d for d, size in enumerate(shape) if any(each.shape[d] != size for each in pieces)]
    if not prod(shape) or len(cut) > MOST_CUT:
        return not prod(shape)
    corners, whole = Counter[tuple[int, ...]](), ((0,) * len(shape), shape)
    for sign, begin, sizes in [(-1, *whole), *((1, each.begin, each.shape) for each in pieces)]:
        for ends in product((0, 1), repeat=len(cut)):
            place = tuple(begin[d] + end * sizes[d] for d, end in zip(cut, ends, strict=True))
            corners[place] += sign * (-1) ** sum(ends)
    return not any(corners.values())


def qualified(parameters: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The index of each parameter of an optimizer, by its name in the module that has all of them.

    If no module has all, each name begins with its module's, as if these were parts of one.
    """
    every = {index for own in parameters.values() for index in own.values()}
    whole = (dict(own) for own in parameters.values() if {*own.values()} == every)
    parts = {f"{name}.{key}": own[key] for name, own in parameters.items() for key in own}
    return next(whole, parts)


def _index(key: Mapping[str, Any]) -> tuple[str, tuple[int, ...] | None]:
    name, offset = key["fqn"], key.get("offset")
    if not isinstance(name, str):
        raise ValueError("has an entry without a name")
    return name, None if offset is None else _sizes(offset)


def _piece(stored: Mapping[str, Any], *place: tuple[int, ...]) -> _Piece:
    name, (offset, length) = stored["relative_path"], _sizes((stored["offset"], stored["length"]))
    if stored.get("transform_descriptors"):
        raise ValueError("names transforms, such as compression; save again without them")
    if not isinstance(name, str) or name in ("", ".", "..") or {*name} & {*"/\\\0"}:
        raise ValueError(f"names the file {name!r}, which is not inside of the directory")
    return _Piece(name, offset, length, *place)


def _sizes(given: Any) -> tuple[int, ...]:
    if isinstance(given, tuple) and all(type(n) is int and 0 <= n < budget.BEYOND for n in given):
        return given
    raise ValueError("has something else where sizes should be")


def dcp_weights(path: Path, object: str) -> Mapping[str, Any] | None:
    """The tensors of an object in a DCP directory; None if the path is none."""
    if not (path / METADATA).exists():
        return None
    saved = DCPDirectory(path)
    names = saved.names(object) or saved.names("")
    return {n: saved.tensors[full] for n, full in names.items() if full in saved.tensors}

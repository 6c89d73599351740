"""The manifest of a checkpoint: when and why it was written, and the checksums of its files."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ....engine.state import as_float
from ...files import tree_of
from .codec import Encoder, decode

FORMAT = 3
"""Rises when older checkpoints can no longer be read."""

MANIFEST, TREE, TENSORS = "manifest.json", "state.json", ".safetensors"
LARGEST_COUNT = 2**63 - 1
"""The largest number that any field of a manifest takes."""
TRAIN = "train"
"""The file of all tensors that are not a module's."""
FROZEN = ".frozen"
"""The suffix of a file of frozen weights, after the name of the module's other file."""
MANY = 1000
"""The most files for which the manifest has a line each, for people to read."""
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def rank_file(rank: int) -> str:
    """The name, without its ending, of a rank's own files."""
    return f"rank-{rank:05d}"


@dataclass(frozen=True)
class Checksums:
    """A file's size in bytes, and the CRC-32 of each 16 MiB of it."""

    size: int
    crc32: list[int]


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` holds, which is written last and read first."""

    number: int = 0
    """Which save of its directory this is: the order of writing, independent of clocks."""
    iteration: int = 0
    step: int = 0
    epoch: int = 0
    """Completed epochs."""
    reason: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    """The metrics that were numbers."""
    written: dict[str, int] = field(default_factory=dict)
    """The count of the write that set each metric: two saves may hold the same measurement."""
    keep: str = ""
    """The claims of the run, as text: see `keep_of`."""
    world_size: int = 1
    versions: dict[str, str] = field(default_factory=dict)
    files: dict[str, Checksums] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def size(self) -> int:
        """The bytes of all files together."""
        return sum(each.size for each in self.files.values())

    @property
    def holds_run(self) -> bool:
        """True if a run can be resumed from it; an export holds objects alone."""
        return f"{rank_file(0)}.json" in self.files

    def to_json(self) -> str:
        """The text of the file, with a SHA-256 of itself."""
        body: dict[str, Any] = Encoder("the manifest").encode(asdict(self))
        indent = 1 if len(self.files) <= MANY else None  # with thousands of ranks it is large
        return json.dumps(body | {"sha256": _digest(body)}, indent=indent)

    @classmethod
    def of_json(cls, text: str | bytes) -> Manifest:
        """The manifest of a text.

        Raises:
            ValueError: The text is damaged, of another format, or names a file elsewhere.
        """
        try:
            text = text.encode() if isinstance(text, str) else text
            body = tree_of(text)
            if body.pop("sha256") != _digest(body):
                raise ValueError("its checksum does not fit its text")
            if body["format"] != FORMAT:
                raise ValueError(
                    f"it is of format {body['format']!r}, and this reads {FORMAT}; read it with "
                    f"the version that wrote it: {body.get('versions')}"
                )
            content = decode(body, {}) if b'"!' in text else body  # a tag, such as that of NaN
            files = {name: Checksums(**each) for name, each in content.pop("files").items()}
            manifest = cls(files=files, **content)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"it is no manifest ({type(error).__name__}: {error})") from error
        for item in fields(cls):
            if not KINDS[item.type](getattr(manifest, item.name)):
                found = repr(getattr(manifest, item.name))[:50]
                raise ValueError(f"it is no manifest: {item.name} is {found}, not {item.type}")
        if odd := [name for name in files if not PLAIN_NAME.fullmatch(name)]:
            raise ValueError(f"it names files that do not lie beside it: {odd}")
        return manifest


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def _is_number(value: object) -> bool:
    """True for a float, and for an integer that fits into a float."""
    return type(value) is float or (type(value) is int and math.isfinite(as_float(value)))


def _is_checksums(value: object) -> bool:
    return (
        isinstance(value, Checksums)
        and _is_count(value.size)
        and type(value.crc32) is list
        and all(_is_count(each) for each in value.crc32)
    )


def _dict_of(is_one: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: (
        type(value) is dict
        and all(type(key) is str and is_one(each) for key, each in value.items())
    )


KINDS: dict[Any, Callable[[object], bool]] = {
    "int": _is_count,
    "str": lambda value: type(value) is str,
    "dict[str, int]": _dict_of(_is_count),
    "dict[str, str]": _dict_of(lambda value: type(value) is str),
    "dict[str, float]": _dict_of(_is_number),
    "dict[str, Checksums]": _dict_of(_is_checksums),
}
"""Whether a value has the type that is annotated."""


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@cache  # looking up a version reads a file, and the run waits for a save
def installed_versions() -> dict[str, str]:
    """The versions of the packages that write a checkpoint."""
    found = {}
    for name in ("camshaft", "torch", "safetensors"):
        try:
            found[name] = version(name) or "unknown"  # of damaged metadata it is None
        except (PackageNotFoundError, FileNotFoundError):  # of importlib_metadata, if it is damaged
            found[name] = "unknown"
    return found

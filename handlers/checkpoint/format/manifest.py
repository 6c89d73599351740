"""What a checkpoint says of itself: when it was written, why, and what its files hold."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ....engine import ranks
from ....engine.state.state import State
from .codec import Encoder, decode
from .strict_json import tree_of

FORMAT = 1
"""Rises when a checkpoint of before can no longer be read."""

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Contents:
    """A file's size in bytes, and the CRC-32 of each 16 MiB of it."""

    size: int
    crc32: list[int]


@dataclass(frozen=True)
class Manifest:
    """The last file of a checkpoint that is written, and the first one that is read."""

    number: int = 0
    """Which save of its directory this is: the order of writing, whatever clocks say."""
    iteration: int = 0
    step: int = 0
    epoch: int = 0
    """Epochs that were over."""
    reason: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    """The metrics that were numbers."""
    written: dict[str, int] = field(default_factory=dict)
    """Which write of the run each of them was: two saves may hold the same measurement."""
    keep: str = ""
    """The claims of the run, as one writes them."""
    world_size: int = 1
    versions: dict[str, str] = field(default_factory=dict)
    files: dict[str, Contents] = field(default_factory=dict)
    format: int = FORMAT

    @classmethod
    def about(
        cls, state: State[Any, Any], reason: str, metrics: dict[str, float], *, keep: str
    ) -> Manifest:
        """The manifest of a save of this run, but for what is known when it is written."""
        return cls(
            iteration=state.iteration,
            step=state.step,
            epoch=state.epoch - state.control.in_epoch,
            reason=reason,
            metrics=metrics,
            written={name: state.metrics.written(name) for name in metrics},
            keep=keep,
            world_size=ranks.world_size(),
            versions={name: _version(name) for name in ("camshaft", "torch", "safetensors")},
        )

    @property
    def size(self) -> int:
        """The bytes of all its files together."""
        return sum(each.size for each in self.files.values())

    def to_json(self) -> str:
        """The text of the file, which holds its own SHA-256."""
        body: dict[str, Any] = Encoder("the manifest").encode(asdict(self))
        return json.dumps(body | {"sha256": _digest(body)}, indent=1)

    @classmethod
    def of_json(cls, text: str | bytes) -> Manifest:
        """The manifest of that text.

        Raises:
            ValueError: It is damaged, of another format, or names a file that is not plain.
        """
        try:
            body = tree_of(text.encode() if isinstance(text, str) else text)
            if body.pop("sha256") != _digest(body):
                raise ValueError("its checksum does not fit its text")
            if body["format"] != FORMAT:
                raise ValueError(
                    f"it is of format {body['format']!r}, and this reads {FORMAT}; read it with "
                    f"the version that wrote it: {body.get('versions')}"
                )
            content = decode(body, {})
            files = {name: Contents(**each) for name, each in content.pop("files").items()}
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
    return type(value) is int and 0 <= value < 2**63


def _is_contents(value: object) -> bool:
    return (
        isinstance(value, Contents)
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
    "dict[str, float]": _dict_of(lambda value: type(value) in (int, float)),
    "dict[str, Contents]": _dict_of(_is_contents),
}
"""Whether a value is what the annotation of its field says."""


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@cache  # it reads a file, while a run waits
def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"

"""The manifest of a checkpoint: when and why it was written, and the checksums of its files."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from operator import methodcaller
from typing import Any, ClassVar, cast

from ....engine.state import as_float
from ...common import WEIGHTS_OF, version_of
from ...files import budget, tree_of
from .checksums import COLUMN, MANY, Checksums, ManyChecksums, in_columns, of_columns
from .codec import Encoder, decode, rank_file
from .errors import UnreadableError, UnreadCheckpoint
from .tensors import Payload

FORMAT = 3
"""Rises when older checkpoints can no longer be read."""

LARGEST_COUNT = 2**63 - 1
"""The largest number that any field of a manifest takes."""
TRAIN = "train"
"""The file of all tensors that are not a module's."""
FROZEN = ".frozen"
"""The suffix of a file of frozen weights, after the name of the module's other file."""
ROOM = 2**20
"""Bytes that a manifest needs for the checksums."""
ROOM_OF_RANK = 64
"""Bytes that a manifest needs for the names and sizes of the files of one of many ranks."""
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` holds, which is written last and read first."""

    FILE: ClassVar[str] = "manifest.json"

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
    """The claims of the run, as text: see `Keep.of`."""
    world_size: int = 1
    versions: dict[str, str] = field(default_factory=dict)
    files: Mapping[str, Checksums] = field(default_factory=dict[str, Checksums])
    format: int = FORMAT
    run: str = ""
    """The name of the run, if hosts also save it to disks of their own."""
    start: int = 0
    """The count of starts of that run: a later one has gone on from what was whole then."""
    time: float = 0.0
    """When the run was copied for this save, in seconds since 1970; 0 in earlier versions."""

    @property
    def size(self) -> int:
        """The bytes of all files together."""
        return sum(each.size for each in self.files.values())

    def score(self, metric: str) -> float:
        """A metric of these weights; NaN if there is none, or if it is of another iteration's."""
        others = (
            name.removesuffix(WEIGHTS_OF)
            for name, iteration in self.metrics.items()
            if name.endswith(f"/{WEIGHTS_OF}") and iteration != self.iteration
        )
        return math.nan if metric.startswith((*others,)) else self.metrics.get(metric, math.nan)

    @property
    def holds_run(self) -> bool:
        """True if a run can be resumed from it; an export holds objects alone."""
        return f"{rank_file(0)}.json" in self.files

    def to_json(self) -> str:
        """The text of the file, with a SHA-256 of itself."""
        body: dict[str, Any] = Encoder("the manifest").encode(asdict(replace(self, files={})))
        if not self.run:  # earlier versions know no names of runs
            del body["run"], body["start"]
        if not self.time:
            del body["time"]
        if len(self.files) <= MANY:
            body["files"] = {name: asdict(each) for name, each in self.files.items()}
            return json.dumps(body | {"sha256": _digest(body)}, indent=1)
        columns, rest = in_columns(self.files, self.world_size)
        # A list for each file would be an object for each: see `ManyChecksums`.
        marks = {f"{COLUMN}{kind}": f"\0{kind} of all ranks" for kind in columns}
        body["files"] = marks | rest
        text = json.dumps(body, sort_keys=True)
        for kind, column in columns.items():
            mark = json.dumps(marks[f"{COLUMN}{kind}"])
            text = text.replace(mark, column.replace(",", ", "))
        body["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        text = json.dumps(body, separators=(",", ":"))
        for kind, column in columns.items():
            text = text.replace(json.dumps(marks[f"{COLUMN}{kind}"]), column)
        return text

    def refuse_large(self, files: Mapping[str, Payload], count: int) -> None:
        """Refuse a checkpoint of `count` ranks, and files of this one, that nobody would read."""
        own = sum(len(name) + 2 * ROOM_OF_RANK for name in files)
        said = len(self.to_json())
        if (size := said + own + ROOM + ROOM_OF_RANK * count) > budget.LARGEST_MANIFEST:
            raise UnreadableError(
                f"no checkpoint can be saved: its {self.FILE} would take up to {size:,} bytes, and "
                f"at most {budget.LARGEST_MANIFEST:,} are read: {ROOM_OF_RANK * count:,} for the "
                f"files of {count:,} ranks, {said:,} for metrics and the like. Let fewer ranks "
                "train one model, or put fewer numbers into state.metrics"
            )
        size, name = max(((each.size, name) for name, each in files.items()), default=(0, ""))
        if size > budget.LARGEST_FILE:
            raise UnreadableError(
                f"no checkpoint can be saved: {name} would have {size:,} bytes, and a file has at "
                f"most {budget.LARGEST_FILE:,}. Shard the model over more ranks (fully_shard)"
            )

    @classmethod
    def of_json(cls, text: str | bytes) -> Manifest:
        """The manifest of a text.

        Raises:
            UnreadCheckpoint: It is of another format.
            ValueError: The text is damaged, or names a file elsewhere.
        """
        try:
            text = text.encode() if isinstance(text, str) else text
            body = tree_of(text)
            if body.pop("sha256") != _digest(body):
                raise ValueError("its checksum does not fit its text")
            if body["format"] != FORMAT:
                raise UnreadCheckpoint(  # which is whole, as far as one can see
                    f"it is of format {body['format']!r}, and this reads {FORMAT}; read it with "
                    f"the version that wrote it: {body.get('versions')}"
                )
            content = decode(body, {}) if b'"!' in text else body  # a tag, such as that of NaN
            files = content.pop("files")
            if any(map(methodcaller("startswith", COLUMN), files)):
                files = of_columns(files)
            else:
                files = {name: Checksums(**each) for name, each in files.items()}
            manifest = cls(files=files, **content)
        except (AttributeError, KeyError, OverflowError, TypeError) as error:
            raise ValueError(f"it is no manifest ({type(error).__name__}: {error})") from error
        for item in fields(cls):
            if not _fits(str(item.type), getattr(manifest, item.name)):
                found = repr(getattr(manifest, item.name))[:50]
                raise ValueError(f"it is no manifest: {item.name} is {found}, not {item.type}")
        if not all(map(PLAIN_NAME.fullmatch, files)):
            odd = [name for name in files if not PLAIN_NAME.fullmatch(name)]
            raise ValueError(f"it names files that do not lie beside it: {odd}")
        if odd := [name for name, each in files.items() if each.size > budget.LARGEST_FILE]:
            raise ValueError(f"it names files of more than {budget.LARGEST_FILE} bytes: {odd[:3]}")
        return manifest


def _are_counts(values: Collection[object]) -> bool:
    if not {*map(type, values)} <= {int}:
        return False
    counts = cast(Collection[int], values)
    return not counts or (min(counts) >= 0 and max(counts) <= LARGEST_COUNT)


def _are_texts(values: Collection[object]) -> bool:
    return {*map(type, values)} <= {str}


def _are_numbers(values: Collection[object]) -> bool:
    """True for floats, and for integers that fit into a float."""
    if not {*map(type, values)} <= {int, float}:
        return False
    return all(map(math.isfinite, map(as_float, (n for n in values if type(n) is int))))


def _are_checksums(values: Collection[Any]) -> bool:
    if not {*map(type, values)} <= {Checksums} or not {type(e.crc32) for e in values} <= {list}:
        return False
    return _are_counts([n for each in values for n in (each.size, *each.crc32)])


KINDS: dict[str, Callable[[Collection[Any]], bool]] = {
    "int": _are_counts,
    "float": lambda values: _are_numbers(values) and 0 <= min(values) <= max(values) < math.inf,
    "str": _are_texts,
    "Checksums": _are_checksums,
}
"""Whether values have the type that is annotated, alone or in a dict by text."""


def _fits(annotation: str, value: Any) -> bool:
    if annotation in KINDS:
        return KINDS[annotation]([value])
    if type(value) is ManyChecksums:
        return True
    kind = annotation[:-1].rpartition(" ")[2]
    fit = _are_numbers if kind == "float" else KINDS[kind]  # a metric may be NaN
    return type(value) is dict and _are_texts(value) and fit(value.values())


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@cache  # looking up a version reads a file, and the run waits for a save
def installed_versions() -> dict[str, str]:
    """The versions of the packages that write a checkpoint."""
    return {name: version_of(name) or "unknown" for name in ("camshaft", "torch", "safetensors")}

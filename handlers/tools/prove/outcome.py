"""The results of a trial, and their differences from another trial's.

Results are the reports of its processes at their saves, its checkpoints, rows and other files.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from ..checkpoints import leaves_of, unequal
from .hook import CHECKPOINT
from .trial import Trial

Kind = Literal["object", "metric", "random numbers", "checkpoint", "row", "file"]
Facts = list[tuple[tuple[Kind, str, tuple[Any, ...]], dict[str, str]]]
"""Of what kind, of what and of which moment, and the values there by their names.

A moment begins with its iteration; that of a row is its number. What belongs to no moment, which is
`()`, has to be in both outcomes. A run that was resumed has some moments twice.
"""

OF_ONE_PROCESS = re.compile(
    r"\.counts\.Events\.(LOADING|STARTED|SAVING|FAILED|CLOSED)$"
    r"|\.passed(\.|$)|\.memory\.Checkpoint|\.versions\."
)
"""Values of a checkpoint that each process has for itself."""
OURS = re.compile(r"LATEST|LOCK|.*\.(jsonl|csv)\.\d+")
"""Files of handlers; the numbered ones hold rows of an attempt that was killed before a save."""


CLOCK = re.compile(r"(^|[/_. ])(time|seconds|duration|elapsed|eta|memory|timestamp|per_second)\b")
"""Names of metrics that tell of the machine, not of the training."""
METRIC = re.compile(r"(rank-\d+\.run\.)?metrics\.")
"""How the names of metrics begin in a checkpoint."""
TEXT = 60
"""Characters of a value in a message."""


def outcome_of(trial: Trial) -> Facts:
    """All of a trial that can be compared."""
    return [*_reported(trial), *_left(trial)]


def _left(trial: Trial) -> Iterator[tuple[tuple[Kind, str, tuple[Any, ...]], dict[str, str]]]:
    """What it has left in its working directory: checkpoints, rows, and checksums of files."""
    rows = dict[str, list[dict[str, str]]]()
    for path, inner, names in os.walk(trial.place):
        folder, place = Path(path), Path(path).relative_to(trial.place)
        saved = sorted(filter(CHECKPOINT.fullmatch, inner))
        yield ("checkpoint", place.as_posix(), ()), {n.split(".")[0]: "kept" for n in saved}
        for name in saved:
            iteration = int(name.split(".")[0].removeprefix("iteration-"))
            yield ("checkpoint", place.as_posix(), (iteration, name)), dict(_saved(folder / name))
        inner[:] = sorted({*inner} - {*saved, "__pycache__"})
        for name in sorted(names):
            file, own = folder / name, (place / name).as_posix()
            if file.is_symlink() or not file.is_file():
                continue
            if ".tfevents." in name:
                board = f"{place.as_posix()}/*.tfevents.*"
                rows[board] = _events(file.read_bytes(), rows.get(board, []))
            elif (found := file_rows(file)) is not None:
                rows[own] = found
            elif not OURS.fullmatch(name):
                yield ("file", own, ()), {"": _digest(file.read_bytes())}
    for own, each in rows.items():
        yield ("row", own, ()), {"the number of rows": str(len(each))}
        for number, row in enumerate(each):
            yield ("row", own, (number,)), row


def _reported(trial: Trial) -> Iterator[tuple[tuple[Kind, str, tuple[Any, ...]], dict[str, str]]]:
    """What its processes told of their saves and of the end."""
    for note in trial.reports:
        if note["event"] in ("save", "close"):
            is_end = note["event"] == "close"
            place = (note["iteration"], note["directory"], note["rank"])
            moment = (*place, is_end or bool(note["in_epoch"]), is_end)
            for name, values in note.get("objects", {}).items():
                yield ("object", name, moment), values
            yield ("metric", "the run", moment), note.get("metrics", {})
            yield ("random numbers", "the process", moment), note.get("generators", {})


def _saved(path: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(path.iterdir()):
        if file.name == "manifest.json":
            manifest = json.loads(file.read_bytes())
            for name in ("step", "epoch", "metrics"):
                yield from _texts(manifest[name], name)
        elif file.suffix == ".json":
            for name, value in _texts(json.loads(file.read_bytes()), file.stem):
                if not OF_ONE_PROCESS.search(name):
                    yield name, value
        elif file.suffix == ".safetensors":
            for name, value in _tensors(file.read_bytes()):
                yield f"{file.stem}.{name}", value


def _tensors(content: bytes) -> Iterator[tuple[str, str]]:
    (length,) = struct.unpack("<Q", content[:8])
    for name, each in json.loads(content[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + place for place in each["data_offsets"])
            yield name, f"{each['dtype']} {each['shape']} {_digest(content[begin:end])}"


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _texts(value: Any, name: str) -> Iterator[tuple[str, str]]:
    return ((place, json.dumps(each)) for place, each in leaves_of(value, name))


def file_rows(file: Path) -> list[dict[str, str]] | None:
    """The rows of a file; None if it holds no rows."""
    if file.name == "journal.jsonl":
        return [*_journal(file)]
    if file.suffix == ".jsonl":
        return [*_lines(file)]
    if file.suffix == ".csv":
        with file.open(newline="", errors="replace") as rows:
            return [{k or "": str(v) for k, v in row.items()} for row in csv.DictReader(rows)]
    return None


def _lines(file: Path) -> Iterator[dict[str, str]]:
    for line in file.read_text(errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            row = {"line": line}
        yield {name.removeprefix("."): value for name, value in _texts(row, "")}


def _journal(file: Path) -> Iterator[dict[str, str]]:
    """The saves and the end, each once: a resumed run repeats unsaved work."""
    seen = dict[str, dict[str, str]]()
    for row in _lines(file):
        if row.get("event") in ('"saving"', '"completed"'):
            kept = {name: row.get(name, "") for name in ("iteration", "step", "event", "reason")}
            seen[str(kept)] = kept
    yield from sorted(
        seen.values(),
        key=lambda row: (int(row["iteration"]), row["event"] == '"completed"', str(row)),
    )


def _events(content: bytes, before: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows of the files of TensorBoard before, and of one more; a restart takes back some."""
    proto: Any = import_module("tensorboardX.proto.event_pb2")
    found, place = before, 0
    while place + 8 <= len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        event, end = content[place + 12 : place + 12 + length], place + 16 + length
        if end > len(content):  # a kill has cut off the last one
            break
        event, place = proto.Event.FromString(event), end
        if event.session_log.status == proto.SessionLog.START:
            found = [row for row in found if int(row["iteration"]) < event.step]
        for value in event.summary.value:
            if value.tag and not value.tag.startswith("_hparams_/"):  # of each start, with its time
                row = {"tag": value.tag, "iteration": str(event.step)}
                found.append({**row, "value": _digest(value.SerializeToString())})
    return sorted(found, key=lambda row: (row["tag"], int(row["iteration"])))


@dataclass(frozen=True)
class Difference:
    """One value that is not the same in two runs."""

    kind: Kind
    what: str
    """The object, or the file in the script's working directory."""
    name: str
    """The tensor, the field, or whatever is inside."""
    iteration: int | None
    one: str = ""
    other: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        """The value, at any moment."""
        return self.kind, self.what, self.name

    @property
    def rank(self) -> tuple[float, int]:
        """The first by iteration comes first, and among those the objects."""
        order = ("object", "metric", "row", "checkpoint", "file", "random numbers")
        return (float("inf") if self.iteration is None else self.iteration, order.index(self.kind))

    @property
    def place(self) -> str:
        """Where it is, without the moment."""
        return f"{self.what}: {self.name}" if self.name else self.what

    def __str__(self) -> str:
        moment = "" if self.iteration is None else f" at iteration {self.iteration}"
        values = f": {self.one[:TEXT]} and {self.other[:TEXT]}" if self.one or self.other else ""
        return f"{self.kind} {self.place}{moment}{values}"


def differences(whole: Facts, other: Facts) -> list[Difference]:
    """Everything that differs, the first by iteration first."""
    first, second = dict(reversed(whole)), dict(other)
    lacking = [(key, dict[str, str]()) for key in first if key not in second]
    found = list[Difference]()
    for key, values in [*other, *lacking]:
        kind, what, moment = key
        if moment and not (key in first and key in second):
            continue
        before = first.get(key, {})
        iteration = moment[0] if moment else None
        if kind == "row":
            at = before.get("iteration") or before.get("step") or ""
            iteration = int(at) if at.isdecimal() else None
        for name, one, two in unequal(before, values):
            # After a kill between a save and the dropping of older ones, more are left.
            is_more = kind == "checkpoint" and not moment and one is None
            is_metric = kind in ("row", "metric") or METRIC.match(name)
            if not is_more and not (is_metric and CLOCK.search(name)):
                place = before.get("tag", name) if kind == "row" else name
                texts = ("missing" if each is None else each for each in (one, two))
                found.append(Difference(kind, what, place, iteration, *texts))
    return sorted(found, key=lambda each: each.rank)

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from ...checkpoint import MANIFEST, NAME
from .trial import Trial

Facts = list[tuple[tuple[Any, ...], dict[str, str]]]
"""Kind, object and moment, and the values there by their names, in the order of time."""

OF_ONE_PROCESS = re.compile(
    r"\.counts\.Events\.(LOADING|STARTED|SAVING|FAILED|CLOSED)$"
    r"|\.passed(\.|$)|\.memory\.Checkpoint|\.versions\."
)
"""Values of a checkpoint that each process has for itself."""
OURS = re.compile(r"LATEST|LOCK|.*\.(jsonl|csv)\.\d+")
"""Files of handlers; the numbered ones hold rows of an attempt that was killed before a save."""


Kind = Literal["object", "metric", "random numbers", "checkpoint", "row", "file"]
CLOCK = re.compile(r"(^|[/_. ])(time|seconds|duration|elapsed|eta|memory|timestamp|per_second)\b")
"""Names of metrics that tell of the machine, not of the training."""
TEXT = 60
"""Characters of a value in a message."""


@dataclass(frozen=True)
class Outcome:
    """All of a trial that can be compared."""

    saves: Facts
    """What there was at each save and at the end; some twice, in a run that was resumed."""
    checkpoints: dict[str, dict[str, dict[str, str]]]
    """By directory and checkpoint: the values by their names."""
    rows: dict[str, list[dict[str, str]]]
    """By file, the rows with all fields as text."""
    files: dict[str, str]
    """Checksums of all other files that the script has left."""


def outcome_of(trial: Trial) -> Outcome:
    """Read the results of a trial."""
    checkpoints = dict[str, dict[str, dict[str, str]]]()
    rows, files = dict[str, list[dict[str, str]]](), dict[str, str]()
    for path, inner, names in os.walk(trial.place):
        folder = Path(path)
        place = folder.relative_to(trial.place)
        saved = sorted(name for name in inner if NAME.fullmatch(name))
        if saved:
            checkpoints[place.as_posix()] = {
                name: dict(_checkpoint(folder / name)) for name in saved
            }
        inner[:] = sorted({*inner} - {*saved, "__pycache__"})
        for name in sorted(names):
            file, own = folder / name, (place / name).as_posix()
            if file.is_symlink() or not file.is_file():
                continue
            if ".tfevents." in name:
                board = f"{place.as_posix()}/*.tfevents.*"
                rows[board] = _events(file.read_bytes(), rows.get(board, []))
            elif (found := _rows(file)) is not None:
                rows[own] = found
            elif not OURS.fullmatch(name):
                files[own] = _digest(file.read_bytes())
    return Outcome([*_facts(trial)], checkpoints, rows, files)


def _facts(trial: Trial) -> Iterator[tuple[tuple[Any, ...], dict[str, str]]]:
    for note in trial.reports:
        if note["event"] in ("save", "close"):
            moment = moment_of(note)
            for name, values in note.get("objects", {}).items():
                yield ("object", name, moment), values
            yield ("metric", "the run", moment), note.get("metrics", {})
            yield ("random numbers", "the process", moment), note.get("generators", {})


def moment_of(note: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which save of a run it is, in whatever process; the end of the run is the last one."""
    iteration = note["iteration"]
    is_end = note["event"] == "close"
    return (note["directory"], note["rank"], iteration, is_end or bool(note["in_epoch"]), is_end)


def _checkpoint(path: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(path.iterdir()):
        if file.name == MANIFEST:
            manifest = json.loads(file.read_bytes())
            for name in ("step", "epoch", "metrics"):
                yield from _leaves(manifest[name], name)
        elif file.suffix == ".json":
            for name, value in _leaves(json.loads(file.read_bytes()), file.stem):
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


def _leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """The plain values of a tree, by their paths; a list of numbers is one value."""
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("!"):
        tag, inner = next(iter(value.items()))
        pairs = tag == "!dict" and isinstance(inner, list)
        value = {str(key): each for key, each in inner} if pairs else inner
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, f"{name}.{key}")
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for number, each in enumerate(value):
            yield from _leaves(each, f"{name}.{number}")
    else:
        yield name, json.dumps(value)


def _rows(file: Path) -> list[dict[str, str]] | None:
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
        yield {name.removeprefix("."): value for name, value in _leaves(row, "")}


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


def differences(whole: Outcome, other: Outcome) -> list[Difference]:
    """Everything that differs, the first by iteration first."""
    found = [
        *_in_saves(whole.saves, other.saves),
        *_in_checkpoints(whole.checkpoints, other.checkpoints),
        *_in_rows(whole.rows, other.rows),
        *_in_files(whole.files, other.files),
    ]
    return sorted(found, key=lambda each: each.rank)


def _in_saves(whole: Facts, other: Facts) -> Iterator[Difference]:
    first = dict(reversed(whole))
    for key, values in other:
        kind, what, moment = key
        if key in first:
            for name, one, two in _unequal(first[key], values):
                yield Difference(kind, what, name, moment[2], one, two)


def _in_checkpoints(whole: Any, other: Any) -> Iterator[Difference]:
    for directory in whole.keys() | other.keys():
        ours, theirs = whole.get(directory, {}), other.get(directory, {})
        # After a kill between a save and the dropping of older ones, more are left.
        if missing := {name.split(".")[0] for name in ours} - {n.split(".")[0] for n in theirs}:
            names = ", ".join(sorted(missing))
            yield Difference("checkpoint", directory, "kept", None, names, "missing")
        for name in ours.keys() & theirs.keys():
            iteration = int(name.split(".")[0].removeprefix("iteration-"))
            for value, one_value, two_value in _unequal(ours[name], theirs[name]):
                yield Difference("checkpoint", directory, value, iteration, one_value, two_value)


def _in_rows(whole: Any, other: Any) -> Iterator[Difference]:
    for file in whole.keys() | other.keys():
        ours, theirs = whole.get(file, []), other.get(file, [])
        for one, two in zip(ours, theirs, strict=False):
            place = one.get("iteration") or one.get("step") or ""
            iteration = int(place) if place.isdecimal() else None
            for name, a, b in _unequal(one, two):
                if not CLOCK.search(name):
                    yield Difference("row", file, one.get("tag", name), iteration, a, b)
        if len(ours) != len(theirs):
            yield Difference(
                "row", file, "the number of rows", None, str(len(ours)), str(len(theirs))
            )


def _in_files(whole: Mapping[str, str], other: Mapping[str, str]) -> Iterator[Difference]:
    for file, _, _ in _unequal(whole, other):
        yield Difference("file", file, "", None)


def _unequal(one: Mapping[str, str], two: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name in {**one, **two}:
        a, b = one.get(name, "missing"), two.get(name, "missing")
        if a != b:
            yield name, a, b

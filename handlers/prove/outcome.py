"""What a trial has left: what was told at its saves, its checkpoints, its rows, its other files."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ..checkpoint import MANIFEST, NAME
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


class Outcome:
    """All of a trial that can be compared; read when it is first asked for."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    @cached_property
    def saves(self) -> Facts:
        """What there was at each save and at the end; some twice, in a run that was resumed."""
        found: Facts = []
        for note in (each for start in self.trial.starts for each in start.notes):
            if note["event"] in ("save", "close"):
                moment = moment_of(note)
                for name, values in note.get("objects", {}).items():
                    found.append((("object", name, moment), values))
                found.append((("metric", "the run", moment), note.get("metrics", {})))
                values = note.get("generators", {})
                found.append((("random numbers", "the process", moment), values))
        return found

    @cached_property
    def checkpoints(self) -> dict[str, dict[str, dict[str, str]]]:
        """By directory and checkpoint: the values by their names."""
        found: dict[str, dict[str, dict[str, str]]] = {}
        for directory in self._folders:
            inside = {e.name: e for e in directory.iterdir() if NAME.fullmatch(e.name)}
            if inside:
                name = directory.relative_to(self.trial.place).as_posix()
                found[name] = {
                    each: dict(_checkpoint(path)) for each, path in sorted(inside.items())
                }
        return found

    @cached_property
    def rows(self) -> dict[str, list[dict[str, str]]]:
        """By file, the rows with all fields as text."""
        found: dict[str, list[dict[str, str]]] = {}
        for file in self._files:
            name = file.relative_to(self.trial.place).as_posix()
            if file.name == "journal.jsonl":
                found[name] = list(_journal(file))
            elif file.suffix == ".jsonl":
                found[name] = list(_lines(file))
            elif file.suffix == ".csv":
                with file.open(newline="", errors="replace") as rows:
                    found[name] = [
                        {k or "": str(v) for k, v in r.items()} for r in csv.DictReader(rows)
                    ]
            elif ".tfevents." in name:
                board = f"{file.parent.relative_to(self.trial.place).as_posix()}/*.tfevents.*"
                found[board] = _events(file.read_bytes(), found.get(board, []))
        for name, rows_of_file in found.items():
            if name.endswith(".tfevents.*"):
                rows_of_file.sort(key=lambda row: (row["tag"], int(row["iteration"])))
        return found

    @cached_property
    def files(self) -> dict[str, str]:
        """Checksums of all other files that the script has left."""
        taken = self.rows.keys()
        names = {each: each.relative_to(self.trial.place).as_posix() for each in self._files}
        return {
            name: hashlib.blake2b(file.read_bytes()).hexdigest()
            for file, name in names.items()
            if name not in taken and ".tfevents." not in name and not OURS.fullmatch(file.name)
        }

    @cached_property
    def _folders(self) -> list[Path]:
        return [Path(folder) for folder, names, _ in os.walk(self.trial.place) if names]

    @cached_property
    def _files(self) -> list[Path]:
        found = []
        for folder, inner, names in os.walk(self.trial.place):
            inner[:] = [n for n in inner if not NAME.fullmatch(n) and n != "__pycache__"]
            paths = (Path(folder, name) for name in names)
            found += [path for path in paths if path.is_file() and not path.is_symlink()]
        return sorted(found)


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
            numbers = hashlib.blake2b(content[begin:end], digest_size=8).hexdigest()
            yield name, f"{each['dtype']} {each['shape']} {numbers}"


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


def _lines(file: Path) -> Iterator[dict[str, str]]:
    for line in file.read_text(errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            row = {"line": line}
        yield (
            dict(_leaves(row, ""))
            if not isinstance(row, dict)
            else {name.removeprefix("."): value for name, value in _leaves(row, "")}
        )


def _journal(file: Path) -> Iterator[dict[str, str]]:
    """The saves and the end, each once: a resumed run does again what was not saved."""
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
    found, place = before, 0
    while place + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        event = list(_fields(content[place + 12 : place + 12 + length]))
        place += 16 + length
        step = next((value for number, value in event if number == 2), 0)
        if any(number == 7 and (1, 1) in _fields(value) for number, value in event):
            found = [row for row in found if int(row["iteration"]) < step]
        for number, summary in event:
            for inner, value in _fields(summary) if number == 5 else ():
                tag = (
                    next((each for n, each in _fields(value) if n == 1), b"") if inner == 1 else b""
                )
                if tag and not tag.startswith(b"_hparams_/"):  # of each start, with its time
                    digest = hashlib.blake2b(value, digest_size=8).hexdigest()
                    found.append({"tag": tag.decode(), "iteration": str(step), "value": digest})
    return found


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message of protobuf, by their numbers."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(message):
        key = varint()
        width = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = varint() if width is None else width
        yield key >> 3, message[place : place + size]
        place += size

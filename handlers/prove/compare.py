"""What differs between two runs: at their saves, in their last checkpoints, and in their rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .outcome import Facts, Outcome

Kind = Literal["object", "metric", "random numbers", "checkpoint", "row", "file"]
CLOCK = re.compile(r"(^|[/_. ])(time|seconds|duration|elapsed|eta|memory|timestamp|per_second)\b")
"""Names of metrics that tell of the machine, not of the training."""
TEXT = 60
"""Characters of a value in a message."""


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

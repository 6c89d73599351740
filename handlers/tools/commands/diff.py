"""`camshaft diff`: in what two runs, checkpoints or configs differ."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from ...checkpoint import Saved
from ...common import aligned, show, show_json
from ...journal import JOURNAL
from ..checkpoints import (
    NoCheckpointError,
    checkpoint_differences,
    is_checkpoint,
    saved_in,
    unequal,
)
from ..configs import yaml_settings
from ..report import NothingToReportError, by_path, read_journal
from ..steering import read_ledger

CLOCKS = ("iteration", "step", "epoch", "world_size")


def diff(path: Path, other: Path, as_json: bool) -> int:
    """Print in what two runs, checkpoints or configs differ; 1 if they do.

    Of two runs, these are the configs in their journals, what `camshaft set` has changed, and the
    newest good checkpoints.
    """
    for each in (path, other):
        if not each.exists():
            raise NothingToReportError(f"{each} does not exist")
    compared, found = list[str](), list[dict[str, Any]]()
    one, two = _config(path), _config(other)
    if one is not None and two is not None:
        compared.append("config")
        found += _named("config", one, two)
    if any(ledgers := (_ledger(path), _ledger(other))):
        compared.append("ledger")
        found += _named("ledger", *ledgers)
    first, second = _checkpoint(path), _checkpoint(other)
    if first and second:
        compared.append("checkpoint")
        found += _named("clocks", *map(_clocks, (first, second)))
        found += [{"in": "checkpoint"} | each for each in checkpoint_differences(first, second)]
    if not compared:
        raise NothingToReportError(
            f"{path} and {other} have nothing in common that can be compared: a config (a .yaml "
            "file, or a run with a Journal) or a checkpoint"
        )
    lacking = [
        f"{kind}, which {path if has is None else other} lacks"
        for kind, has, others in (("config", one, two), ("checkpoint", first, second))
        if (has is None) != (others is None)
    ]
    if as_json:
        used = {"a": str(first and first.path), "b": str(second and second.path)} if first else None
        told = {"compared": compared, "not_compared": lacking, "checkpoints": used}
        show_json(told | {"differences": found})
        return int(bool(found))
    if first and second:
        show([f"a: {first.path}", f"b: {second.path}"])
    rows = [(each["in"], each["name"], *_texts(each)) for each in found]
    show(aligned([("in", "name", "a", "b", "how much"), *rows]) if rows else [])
    count = f"{len(found) or 'no'} difference{'s' * (len(found) != 1)}"
    show([f"{' and '.join(compared)}: {count}", *(f"not compared: {each}" for each in lacking)])
    return int(bool(found))


def _named(kind: str, *two: dict[str, str]) -> list[dict[str, Any]]:
    return [{"in": kind, "name": name, "a": a, "b": b} for name, a, b in unequal(*two)]


def _clocks(saved: Saved) -> dict[str, str]:
    return {name: str(getattr(saved.manifest, name)) for name in CLOCKS}


def _texts(each: dict[str, Any]) -> tuple[str, str, str]:
    a, b = ("-" if each[side] is None else str(each[side]) for side in "ab")
    if "numbers" not in each:
        return a, b, ""
    text = "{numbers:,} of its numbers, by up to {largest:.3g}, relative {relative:.3g}"
    return (
        a,
        "the same",
        text.format_map(each) if each["numbers"] else "the bits alone, such as the sign of 0",
    )


def _config(path: Path) -> dict[str, str] | None:
    """The settings by their paths: of a YAML file, or of the newest start in a journal."""
    if path.is_file():
        return by_path(yaml_settings(path))
    if is_checkpoint(path):
        return None
    told = [each["config"] for each in read_journal(path / JOURNAL) if each.get("config")]
    return by_path(told[-1]) if told else None


def _ledger(path: Path) -> dict[str, str]:
    """What `camshaft set` has changed in a run, by iteration and name."""
    rows = [row for row in read_ledger(path) if "refused" not in row] if path.is_dir() else []
    return {f"{row['iteration']} {n}": str(row["set"][n]) for row in rows for n in row["set"]}


def _checkpoint(path: Path) -> Saved | None:
    """The checkpoint at a path, or the newest good one of a directory."""
    with suppress(NoCheckpointError):
        return None if path.is_file() else saved_in(path)
    return None

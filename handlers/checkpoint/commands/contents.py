"""What one checkpoint holds, for `camshaft inspect`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from ...common import aligned, readable_metrics, readable_size
from ..directory import Finding, StoredTensor, part_tree, tensors_by_name, tree_in
from ..format import (
    FROZEN,
    TENSORS,
    TREE,
    Manifest,
    rank_file,
    reading,
    references,
)


def contents(found: Finding) -> list[str]:
    """The lines about one checkpoint's content; for a broken one, the reason.

    Raises:
        BrokenCheckpoint: The files are whole, but no run writes such files.
    """
    if found.saved is None or found.problem is not None:
        return [f"{found.path} is broken: {found.problem}"]
    manifest = found.saved.manifest
    with reading(found.path, TREE):
        tree = tree_in(found.saved)
        facts = _facts(manifest, part_tree(found.saved))
        objects = _objects(tree["objects"], tensors_by_name(found.saved))
        lines = aligned([("object", *HEAD), *objects])
    sizes = [(name, each.size) for name, each in manifest.files.items()]
    left = [("...", sum(size for _, size in sizes[MOST:]))] if len(sizes) > MOST else []
    files = aligned([("file", "bytes"), *sizes[:MOST], *left])
    return [str(found.path), *facts, "", *lines, "", *files]


MOST = 50
"""The most files that are listed: a run on thousands of ranks has as many files."""
HEAD = ("tensors", "numbers", "bytes", "types", "file")


def _facts(manifest: Manifest, part: dict[str, Any] | None) -> list[str]:
    rows = [
        *(_of_run(manifest, part) if part is not None else _of_export(manifest)),
        ("why", manifest.reason),
        ("metrics", readable_metrics(manifest.metrics) or "none"),
        ("kept by", manifest.keep or "unknown"),
        ("versions", ", ".join(f"{name} {each}" for name, each in manifest.versions.items())),
        ("ranks", str(manifest.world_size)),
        ("size", readable_size(manifest.size)),
    ]
    return aligned(rows)


def _of_run(manifest: Manifest, run: dict[str, Any]) -> Iterator[tuple[str, str]]:
    position = _position(manifest)
    if run["in_epoch"]:
        inside = _counted(run["iteration"] - run["epoch_began"], "iteration")
        position += f"; {inside} into epoch {run['epoch']}"
    yield "position", position
    yield "stopped", str(run["stop_reason"] or "no")
    yield "memory", ", ".join(_names(run["memory"])) or "none"


def _of_export(manifest: Manifest) -> Iterator[tuple[str, str]]:
    yield "position", _position(manifest)
    yield "holds", "exported objects alone; no run can resume from them"


def _position(manifest: Manifest) -> str:
    clocks = {"epoch": manifest.epoch, "iteration": manifest.iteration, "step": manifest.step}
    return ", ".join(_counted(count, name) for name, count in clocks.items())


def _objects(
    objects: dict[str, Any], tensors: dict[str, dict[str, StoredTensor]]
) -> Iterator[tuple[str | int, ...]]:
    cut = {file for file, own in tensors.items() if any(each.is_cut for each in own.values())}
    left = {file: dict(each) for file, each in tensors.items()}
    files = {each["file"] for each in objects.values()}
    split = {file for file in files if f"{file}{FROZEN}" in tensors.keys() - files}
    for name, each in objects.items():
        own = [left[each["file"]].pop(tensor) for tensor in {*references(each["content"])}]
        yield (name, *_sums(own), _file(each["file"], cut, split))
    for file, rest in left.items():
        if rest and file.removesuffix(FROZEN) not in split:
            yield ("(the run)", *_sums(list(rest.values())), _file(file, cut))


def _file(file: str, cut: Collection[str], split: Collection[str] = ()) -> str:
    """The name of a file, or a pattern for the files of ranks that hold its tensors in pieces."""
    if file in cut:
        return f"{rank_file(0)[:5]}*{TENSORS}"
    return f"{file}{'*' if file in split else ''}{TENSORS}"


def _sums(own: list[StoredTensor]) -> tuple[int, int, int, str]:
    infos = [each.info for each in own]
    types = ", ".join(sorted({each.dtype for each in infos}))
    return len(own), sum(e.numbers for e in infos), sum(e.size for e in infos), types


def _names(memory: dict[str, Any]) -> list[str]:
    return [str(name) for name, _ in memory["!dict"]] if "!dict" in memory else list(memory)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

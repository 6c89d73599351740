"""`camshaft inspect`, `verify`, `export`: checkpoints in a line each, one in detail, one file."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, Literal

from ...checkpoint import StoredTensor, reading
from ...checkpoint.directory import Directory, contents_of, is_checkpoint
from ...common import Cell, aligned, readable_metrics, readable_size, show, show_json
from .look import Claims, Finding, Findings, files_on_disk, look, saved_in

WIDEST = 300
"""The most characters before the last column; a longer line shifts only its own last cell."""
MOST = 50
"""The most files that are listed: a run on thousands of ranks has as many files."""
HEAD = ("checkpoint", "epochs", "iteration", "step", "size", "written", "kept by", "why", "metrics")


def inspect(path: Path, as_json: bool, verify: bool) -> int:
    """Show the checkpoints at a path; 1 if one is broken."""
    found = look(path, thoroughly=verify)
    if as_json:
        claims, latest = Claims.of(found), _latest(path)
        show_json([_values(each, claims, latest) for each in found])
    elif is_checkpoint(path):
        show(_contents(found[0]))
    else:
        show(_overview(path, found))
    return int(any(each.problem is not None for each in found))


def verify(path: Path, as_json: bool = False) -> int:
    """Tell for each checkpoint whether it is whole; 1 if one is broken."""
    found = look(path, thoroughly=True)
    code = int(any(each.problem is not None for each in found))
    if as_json:
        show_json([{"path": str(each.path), "broken": each.problem} for each in found])
        return code
    rows = [
        (each.path.name, "whole" if each.problem is None else f"broken: {each.problem}")
        for each in found
    ]
    show([*aligned(rows), *found.notes])
    return code


def export(
    path: Path,
    file: Path,
    object: str | None,
    format: Literal["dcp"] | None = None,
    as_json: bool = False,
) -> int:
    """Export the checkpoint at a path, or the newest good one of a directory."""
    saved = saved_in(path)
    if format == "dcp":
        from ...bridges.dcp import export_dcp  # it imports torch

        export_dcp(saved, file, object)
    else:
        saved.export(file, object)
    size = sum(each.stat().st_size for each in ([*file.iterdir()] if file.is_dir() else [file]))
    if as_json:
        show_json({"file": str(file), "size": size, "checkpoint": str(saved.path)})
    else:
        show([f"{file}  {readable_size(size)}  from {saved.path}"])
    return 0


def _overview(path: Path, found: Findings) -> list[str]:
    claims, latest = Claims.of(found), _latest(path)
    rows = [HEAD[:-1], *(_cells(each, claims, latest) for each in found)]
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    first = [best.metric for best in claims.keep.bests] if claims.keep else []
    lines = aligned(rows)
    ends = [HEAD[-1], *(_end(each, first, width and width - len(lines[0]) - 2) for each in found)]
    broken = sum(each.problem is not None for each in found)
    # A file that several checkpoints share takes its space only once.
    size = readable_size(sum(files_on_disk(each.saved for each in found if each.saved).values()))
    kept = f"; the run keeps {claims.keep!r}" if claims.keep else ""
    count = f"{len(found)} checkpoint{'' if len(found) == 1 else 's'}, {broken} broken, {size}"
    longest = min(WIDEST, max(map(len, lines)))
    joined = (f"{line:{longest}}  {end}" for line, end in zip(lines, ends, strict=True))
    return [f"{path}: {count}{kept}", *joined, *found.notes]


def _cells(each: Finding, claims: Claims, latest: str | None) -> tuple[Cell, ...]:
    name = f"{each.path.name} LATEST" if each.path.name == latest else each.path.name
    if each.saved is None:
        return (name, *("-" for _ in HEAD[1:-1]))
    one = each.saved.manifest
    kept = "-" if each.problem is not None else claims.text(each)
    why = one.reason.replace("Events.", "")
    size, time = readable_size(one.size), _time(each)
    written = time.isoformat(" ", "minutes") if time else "-"
    return (name, one.epoch, one.iteration, one.step or "-", size, written, kept, why)


def _end(each: Finding, first: list[str], width: int | None) -> str:
    """The last cell of a line: the damage, or the metrics that fit, first those of claims."""
    if each.problem is not None or each.saved is None:
        return f"broken: {each.problem}"
    metrics = each.saved.manifest.metrics
    ordered = {name: metrics[name] for name in (*first, *metrics) if name in metrics}
    text = readable_metrics(ordered)
    while width is not None and len(text) > width and len(ordered) > 1:
        ordered.popitem()
        text = f"{readable_metrics(ordered)}, ..."
    return text


def _values(each: Finding, claims: Claims, latest: str | None) -> dict[str, Any]:
    """The output of `--json`."""
    values: dict[str, Any] = {
        "path": str(each.path),
        "latest": each.path.name == latest,
        "broken": each.problem,
    }
    if each.saved is None:
        return values
    one = each.saved.manifest
    number, time = one.number if each.problem is None else None, _time(each)
    return values | {
        "iteration": one.iteration,
        "step": one.step,
        "epochs": one.epoch,
        "why": one.reason,
        "size": one.size,
        "written": time and time.astimezone().isoformat(),
        "metrics": one.metrics,
        "keep": one.keep,
        "kept_by": claims.kept.get(number) if number is not None else None,
        "world_size": one.world_size,
        "versions": one.versions,
        "files": {name: each.size for name, each in one.files.items()},
    }


def _latest(path: Path) -> str | None:
    return Directory(path.resolve().parent if is_checkpoint(path) else path).latest


def _time(each: Finding) -> datetime | None:
    with suppress(OSError, OverflowError, ValueError):  # a time that no calendar has
        if (seconds := each.written) is not None:
            return datetime.fromtimestamp(seconds)
    return None


def _contents(found: Finding) -> list[str]:
    """The lines about one checkpoint's content; for a broken one, the reason."""
    if found.saved is None or found.problem is not None:
        return [f"{found.path} is broken: {found.problem}"]
    manifest = found.saved.manifest
    with reading(found.path):
        run, objects = contents_of(found.saved)
        facts = _facts(found, run)
        rows = [(name, *_sums(tensors), file) for name, tensors, file in objects]
        lines = aligned([("object", "tensors", "numbers", "bytes", "types", "file"), *rows])
    sizes = [(name, each.size) for name, each in manifest.files.items()]
    left = [("...", sum(size for _, size in sizes[MOST:]))] if len(sizes) > MOST else []
    files = aligned([("file", "bytes"), *sizes[:MOST], *left])
    return [str(found.path), *facts, "", *lines, "", *files]


def _facts(found: Finding, run: dict[str, Any] | None) -> list[str]:
    assert found.saved is not None
    manifest = found.saved.manifest
    clocks = {"epoch": manifest.epoch, "iteration": manifest.iteration, "step": manifest.step}
    position = ", ".join(_counted(count, name) for name, count in clocks.items())
    of_run = [("holds", "exported objects alone; no run can resume from them")]
    if run is not None:
        if run["in_epoch"]:
            inside = _counted(run["iteration"] - run["epoch_began"], "iteration")
            position += f"; {inside} into epoch {run['epoch']}"
        memory = run["memory"]
        names = [str(name) for name, _ in memory["!dict"]] if "!dict" in memory else list(memory)
        of_run = [("stopped", str(run["stop_reason"] or "no"))]
        of_run += [("memory", ", ".join(names) or "none")]
    rows = [
        *(("position", position), *of_run),
        *([("written", written.isoformat(" ", "seconds"))] if (written := _time(found)) else []),
        ("why", manifest.reason),
        ("metrics", readable_metrics(manifest.metrics) or "none"),
        ("kept by", manifest.keep or "unknown"),
        ("versions", ", ".join(f"{name} {each}" for name, each in manifest.versions.items())),
        ("ranks", str(manifest.world_size)),
        ("size", readable_size(manifest.size)),
    ]
    return aligned(rows)


def _sums(own: list[StoredTensor]) -> tuple[int, int, int, str]:
    infos = [each.info for each in own]
    types = ", ".join(sorted({each.dtype for each in infos}))
    return len(own), sum(e.numbers for e in infos), sum(e.size for e in infos), types


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

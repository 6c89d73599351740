"""`camshaft replay`: one iteration of a run, computed again by the script of the run, in a copy."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....engine import few
from ...checkpoint import Saved
from ...common import show, show_json
from ...journal import JOURNAL
from ..checkpoints import look, unequal
from ..prove import (
    CLOCK,
    Ended,
    Start,
    Started,
    Trial,
    UntriedError,
    file_rows,
    on_ranks,
    start_process,
    temporary_place,
)
from ..report import read_journal

KINDS = ("batch", "loss", "generators", "gradients", "weights")
MACHINE = ("python", "system", "host", "devices")
SHOWN = 5
VERDICTS = {
    "same": "the same, to the last bit, as what the run wrote",
    "differs": "differs from what the run wrote",
    "nothing to compare": "nothing to compare: the run wrote no row of this iteration",
}


def replay_iteration(
    path: Path,
    iteration: int,
    command_line: Sequence[str],
    as_json: bool = False,
    start: Start = start_process,
    **options: Any,
) -> int:
    """Compute one iteration of a run again, print its fingerprints, and compare what it wrote."""
    with temporary_place() as root:
        try:
            told = _computed(root, path, iteration, command_line, start, **options)
        except (UntriedError, OSError) as error:
            told = {"verdict": "not computed", "reason": str(error)}
        except KeyboardInterrupt:
            print("camshaft: interrupted", file=sys.stderr)
            return 128 + signal.SIGINT
    show_json(told) if as_json else show(_lines(told))
    return {"same": 0, "nothing to compare": 0, "differs": 1}.get(told["verdict"], 2)


def _computed(
    root: Path,
    path: Path,
    iteration: int,
    command_line: Sequence[str],
    start: Start,
    ranks: int = 0,
    pdb: bool = False,
    keep: Sequence[str] = (),
) -> dict[str, Any]:
    home, run = Path.cwd().resolve(), Path(os.path.abspath(path))
    saved = _nearest(path, iteration)
    if not run.is_relative_to(home):
        raise UntriedError(
            f"{path} is not in the working directory, in whose copy the script runs: start it from "
            "a directory that holds the run, or a link to it"
        )
    if pdb and max(ranks, saved.manifest.world_size) > 1:
        raise UntriedError("--pdb stops one process, and the other ranks would wait for it")
    command = on_ranks(command_line, ranks) if ranks else list(command_line)
    trial = Trial(home, root / "trial", command, _at_terminal if pdb else start, run=run)
    copy, row = trial.place / run.relative_to(home), root / "row.jsonl"
    _link(saved.path, copy / saved.path.name)
    (kept := root / "kept").mkdir()
    trial.asked = {
        **{"run": str(copy), "iteration": iteration, "from": saved.manifest.iteration},
        **{"row": str(row), "pdb": pdb, "keep": list(keep), "kept": f"{kept}/{{rank}}"},
        "versions": [*saved.manifest.versions],
    }
    ended = trial.start()
    began = next((note for note in ended.notes if note["event"] == "begin"), None)
    if began is None or not (row.exists() and row.stat().st_size):
        raise UntriedError(_why(path, saved, iteration, began, ended, trial))
    found = json.loads(row.read_text())
    compared = dict(_compared(home, trial.place, iteration, (file_rows(row) or [{}])[0]))
    names, files = list[str](), sorted(kept.iterdir())
    for each in files:
        rank = f".rank-{each.name}" * (len(files) > 1)
        names.append(f"replay-{iteration}{rank}.safetensors")
        shutil.move(each, names[-1])
    verdict = "differs" if any(compared.values()) else "same" if compared else [*VERDICTS][-1]
    return {
        **{"verdict": verdict, "iteration": iteration, "from": str(saved.path)},
        **{"notes": [*_locked(path), *_doubts(path, saved, began)]},
        **{"fingerprints": {kind: found[kind] for kind in KINDS}, "compared": compared},
        "kept": names,
    }


def _nearest(path: Path, iteration: int) -> Saved:
    """The newest whole checkpoint from before an iteration."""
    whole = [each.saved for each in look(path, thoroughly=False) if each.problem is None]
    runs = [each for each in whole if each is not None and each.manifest.holds_run]
    if early := [each for each in runs if each.manifest.iteration < iteration]:
        return max(early, key=lambda each: (each.manifest.iteration, each.manifest.number))
    raise UntriedError(
        f"no checkpoint of {path} is from before iteration {iteration}; those of the run are: "
        f"{few((each.manifest.iteration for each in runs), SHOWN)}. Keep some to go back to: "
        "Checkpoint(..., keep=latest(2) | every(1000))"
    )


def _link(checkpoint: Path, place: Path) -> None:
    """Give the trial a checkpoint, by hard links where it is on the same file system."""
    place.mkdir()
    for each in checkpoint.iterdir():
        try:
            os.link(each, place / each.name)
        except OSError:
            shutil.copy2(each, place / each.name)


def _at_terminal(
    command: Sequence[str], place: Path, environment: Mapping[str, str], output: Path
) -> Started:
    """Start a command that reads from this terminal and writes to it."""
    output.touch()
    return subprocess.Popen(command, cwd=place, env=environment)


def _why(
    path: Path,
    saved: Saved,
    iteration: int,
    began: Mapping[str, Any] | None,
    ended: Ended,
    trial: Trial,
) -> str:
    """Why the iteration was not computed."""
    if ended.code:
        return f"the script fails, with exit code {ended.code}{trial.last_words()}"
    if began is None:
        return (
            f"the script has no Checkpoint({str(path)!r}, resume=True), and ignores this directory:"
            " give the command line that the run had"
        )
    if began["iteration"] != saved.manifest.iteration:
        return (
            f"the script begins at iteration {began['iteration']}, and not from {saved.path}: "
            "write Checkpoint(..., resume=True), without start_over=True and without a path"
        )
    reached = max(note["iteration"] for note in ended.notes if note["event"] == "close")
    return f"the run of this script ends after iteration {reached}, so {iteration} never comes"


def _locked(path: Path) -> Iterator[str]:
    with suppress(OSError, ValueError, LookupError):
        owner = json.loads((path / "LOCK").read_text())
        yield (
            f"process {owner['process']} on {owner['host']} has locked {path} since "
            f"{owner['since']}; a replay only reads it, and disturbs no run"
        )


def _doubts(path: Path, saved: Saved, began: Mapping[str, Any]) -> Iterator[str]:
    """In what this process differs from those that wrote the checkpoint."""
    here = began["versions"] | {"ranks": began["world_size"]}
    there = saved.manifest.versions | {"ranks": saved.manifest.world_size}
    known = [each["environment"] for each in read_journal(path / JOURNAL) if "environment" in each]
    if known:
        here |= {name: began["environment"].get(name) for name in MACHINE}
        there = there | {name: known[-1].get(name) for name in MACHINE}
    if found := [f"{name} is {b} and was {a}" for name, a, b in unequal(there, here)]:
        yield f"{'; '.join(found)}: it is not promised that the bits are those of the run"
    if not known:
        yield "the run has no Journal, so that nobody knows whether its machine was like this one"


def _compared(
    home: Path, place: Path, iteration: int, own: dict[str, str]
) -> Iterator[tuple[str, list[str]]]:
    """By file of rows: what differs in an iteration between the run and the replay."""
    for file in sorted(place.rglob("*")):
        path = home / file.relative_to(place)
        is_rows = file.suffix in (".jsonl", ".csv") and file.name != JOURNAL
        if not is_rows or file.is_symlink() or not path.is_file():
            continue
        rows = ([*filter(None, file_rows(each) or [])] for each in (path, file))
        before, after = ([e for e in r if e.get("iteration") == str(iteration)] for r in rows)
        is_of_prints = bool(before) and before[0].keys() >= {"ranks", "generators.torch"}
        if is_of_prints:
            after = [own]
        elif file.stat().st_mtime_ns == path.stat().st_mtime_ns:  # of another script
            continue
        texts = [
            f"{name} was {a} and is {b}"
            for one, two in zip(before, after, strict=False)
            for name, a, b in unequal(one, two)
            if is_of_prints or not CLOCK.search(name)
        ]
        if before and after:
            yield path.relative_to(home).as_posix(), texts


def _lines(told: Mapping[str, Any]) -> Iterator[str]:
    if "reason" in told:
        yield from f"not computed: {told['reason']}".splitlines()
        return
    yield f"iteration {told['iteration']}, computed again from {told['from']}"
    yield from (f"note: {each}" for each in told["notes"])
    for kind, marks in told["fingerprints"].items():
        yield from (f"{kind:12}{name}: {mark}" for name, mark in marks.items())
    yield from (f"kept: {each}" for each in told["kept"])
    for name, texts in told["compared"].items():
        more = f"; {len(texts) - SHOWN} more" * (len(texts) > SHOWN)
        yield f"{name}: {'; '.join(texts[:SHOWN]) or 'the same'}{more}"
    yield VERDICTS[told["verdict"]]

"""What a proof found, and the lines that tell it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ...files import printable
from .outcome import Difference

Verdict = Literal["proven", "differs", "nondeterministic", "untried"]
CODES: dict[Verdict, int] = {"proven": 0, "differs": 1, "nondeterministic": 1, "untried": 2}


@dataclass
class Proof:
    """What came out."""

    verdict: Verdict = "untried"
    reason: str = ""
    whole_seconds: float = 0.0
    iterations: int = 0
    directories: list[str] = field(default_factory=list[str])
    kills: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    differences: list[Difference] = field(default_factory=list[Difference])
    causes: list[str] = field(default_factory=list[str])
    not_compared: list[str] = field(default_factory=list[str])
    """What differs between two whole runs, apart from the objects."""
    other_files: list[str] = field(default_factory=list[str])
    """Files that are neither checkpoints nor rows, and differ after kills."""
    kept: str | None = None


def lines_of(proof: Proof) -> Iterator[str]:
    """The lines for a reader."""
    if proof.iterations:
        yield (
            f"whole run: {proof.iterations} iterations in {proof.whole_seconds:.1f} s, "
            f"checkpoints in {', '.join(map(printable, proof.directories))}"
        )
    for kill in proof.kills:
        where = " in a save" if kill["in_save"] else ""
        who = "" if kill["rank"] is None else f", rank {kill['rank']} alone"
        after = f"resumed at {kill['resumed_at']}" if kill["resumed_at"] else "began anew"
        yield f"killed at iteration {kill['iteration']}{where}{who}, {after}"
    verdicts = {
        "proven": "proven: a run that is killed and started again ends as the run of no kill",
        "differs": "differs: a run that was killed and started again is another one; first in",
        "nondeterministic": "nondeterministic: two runs without any kill differ; first in",
        "untried": f"could not be tried: {proof.reason}",
    }
    yield verdicts[proof.verdict]
    yield from (f"  {printable(str(each))}" for each in proof.differences)
    if proof.causes:
        yield "likely causes:"
        yield from (f"  {printable(each)}" for each in proof.causes)
    if proof.not_compared and proof.verdict != "nondeterministic":
        yield f"not compared, since two whole runs differ in it: {', '.join(proof.not_compared)}"
    if proof.other_files:
        yield f"files of the script's own that differ after kills: {', '.join(proof.other_files)}"
    if proof.kept:
        yield f"the trials are in {proof.kept}"

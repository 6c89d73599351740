"""The first iteration in which two runs differ, by their `Fingerprints`, and the first thing."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from ...common import show
from ...files import printable, record_of, regular, whole_lines

LIKELY = {
    "batch": "the order of the data, random numbers that one run alone draws, workers, drop_last",
    "generators": "another seed, or random numbers that one run alone draws, as in a validation",
    "loss": "the first weights, the mode of the model, the precision, the loss itself, a kernel",
    "gradients": "clipping, accumulation, averaging over ranks, a nondeterministic kernel",
    "weights": "the optimizer: its rate, schedule or settings; a step that one run skipped; a call "
    "of fingerprint before optimizer.step()",
}
"""What is compared, in the order of cause, and why it may be the first to differ."""


def compare(path: Path, other: Path, as_json: bool = False, rtol: float = -1.0) -> int:
    """Print where two runs part, and return 1 if they do; 2 if there is nothing to compare."""
    found, both, left_out = dict[str, Any](), list[int](), Counter[str]()
    try:
        if folder := next((each for each in (path, other) if each.is_dir()), None):
            raise ValueError(f"{folder} is a directory: name a file of Fingerprints, or use `diff`")
        drawn = _drawn(path) | _drawn(other)
        at = itemgetter("iteration")
        for iteration, rows in groupby(merge(_rows(path), _rows(other), key=at), at):
            one, *others = rows
            both += [iteration] * len(others)
            left_out["iterations"] += not others
            for two, kind in ((two, kind) for two in others for kind in LIKELY):
                a, b = one[kind], two[kind]
                if kind == "generators":  # those that both have, and that matter
                    a, b = ({n: x[n] for n in sorted(drawn & a.keys() & b.keys())} for x in (a, b))
                are_alike = kind in ("gradients", "weights") or one["ranks"] == two["ranks"]
                if not (a and b and are_alike):
                    left_out[kind] += 1
                elif kind not in found and (difference := difference_of(a, b, rtol)):
                    found[kind] = {"iteration": iteration} | difference
        if not both:
            raise ValueError(f"{path} and {other} have no iteration in common")
    except (OSError, ValueError) as error:
        print("camshaft: cannot compare:", printable(str(error)), file=sys.stderr)
        return 2
    first = next(iter(found), "")  # they are found in the order of iterations, and of causes
    if as_json:
        counts = {"compared": len(both), "not_compared": left_out}
        print(json.dumps({"first": first or None, "differences": found} | counts, indent=1))
        return int(bool(found))
    alone = f"; {left_out['iterations']} are in one file alone" * bool(left_out["iterations"])
    lines = [f"{len(both)} iterations compared, {both[0]} to {both[-1]}{alone}"]
    for kind, missed in ((kind, left_out[kind]) for kind in LIKELY):
        text = "not compared" if missed == len(both) else "equal"
        if kind in found:
            text = "iteration {iteration}: {text}".format_map(found[kind])
        lines.append(f"{kind:12}{text}" + f" (not compared in {missed})" * (0 < missed < len(both)))
    missing = [kind for kind in LIKELY if left_out[kind] == len(both)]
    missing += [f"{left_out['iterations']} iterations"] * bool(left_out["iterations"])
    verdict = "no difference" + f" in the rest; not compared: {', '.join(missing)}" * bool(missing)
    show([*lines, f"first: {first}; likely {LIKELY[first]}" if first else verdict])
    return int(bool(found))


def difference_of(
    a: dict[str, str], b: dict[str, str], rtol: float = -1.0
) -> dict[str, Any] | None:
    """What differs in one kind: the names, how far the first two marks are apart, and a text."""
    apart = {n: _apart(a.get(n), b.get(n)) for n in {**a, **b} if a.get(n) != b.get(n)}
    if not (names := [n for n, by in apart.items() if by is None or by > rtol]):
        return None
    name, by = names[0], apart[names[0]]
    shown = dict.fromkeys(str(marks.get(name)).rsplit(" ", 3)[0] for marks in (a, b))  # the kinds
    text = f"{name}, {' and '.join(shown)}" + f", relative difference {by}" * (by is not None)
    text += f"; {len(names) - 1} more" * (len(names) > 1)
    return {"text": text, "names": names, "apart": by}


def _apart(*marks: str | None) -> float | None:
    """About how far two tensors or numbers are apart, relative to the larger; None for others."""
    try:
        one, two = ([float(each) for each in str(m).rsplit(" ", 3)[-2:]] for m in marks)
    except ValueError:
        return None
    apart = max(abs(a - b) for a, b in zip(one, two, strict=False))
    apart /= max(abs(one[0]), abs(two[0])) or 1.0
    return float(f"{apart:.1e}") if math.isfinite(apart) else None


def _drawn(path: Path) -> set[str]:
    """The generators that are not in one state in all rows."""
    states = {(name, str(each)) for row in _rows(path) for name, each in row["generators"].items()}
    return {name for name, count in Counter(name for name, _ in states).items() if count > 1}


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file; a last line that a kill has torn is none."""
    last = 0
    with regular(path) as file:
        for number, line in enumerate(whole_lines(file), 1):
            row = record_of(line) or {}
            at = row.get("iteration") if "ranks" in row else None
            is_row = isinstance(at, int) and all(isinstance(row.get(k), dict) for k in LIKELY)
            if not is_row or row["iteration"] <= last:
                raise ValueError(f"line {number} of {path} is no row of Fingerprints in its place")
            last = row["iteration"]
            yield row

"""Put faults into the package, one at a time, and see whether a test finds each: `make mutants`.

A fault is tried against the tests that run its line. What they miss is listed, and tried once more
with `--again`: against all tests of its room, and those in other processes. What is left is either
a missing test, or a change without a difference: somebody has to look at it.

    python tests/mutants/run.py --count 300 --seed 0
    python tests/mutants/run.py --again
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from functools import partial
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from xml.etree import ElementTree

from mutations import Mutation, mutations

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "mutants"
OTHER_PROCESSES = ("tests/faults", "tests/distributed", "tests/random_runs")
"""Tests whose runs are in processes of their own, where no one sees which lines they run."""
MOST_TESTS = 60.0
"""Seconds of tests that a fault is tried against at first."""
LATER = 10**6
"""Seconds by which a changed file is newer, so that nothing compiled of it is taken for it."""

RESULTS = WORK / "results.jsonl"
Tests = dict[str, float]
Lines = dict[tuple[str, int], set[str]]
Try = Callable[[Path, str, Mutation], str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=300, help="faults to try (300)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (0)")
    parser.add_argument("--only", default="", help="of files whose path begins so")
    parser.add_argument("--again", action="store_true", help="try what was missed, by more tests")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    if not (WORK / "coverage").exists():
        see_which_tests_run_what()
    covering, seconds = covering_tests()
    faults = missed() if options.again else drawn(options.only, options.count, options.seed)
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(options.workers):
        copies.put(copy_of_the_package(number))
    with ThreadPoolExecutor(options.workers) as pool:
        tests = by_room if options.again else partial(by_line, covering, seconds)
        rows = [*pool.map(partial(judged, copies, tests), faults)]
    if options.again:
        rows += [row for row in results() if row["found"]]
    RESULTS.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    tell(rows)


def see_which_tests_run_what() -> None:
    """Run all tests once, noting the lines that each of them runs and how long it takes."""
    settings = WORK / "coveragerc"
    sources = ",".join(str(ROOT / name) for name in ("engine", "handlers"))
    settings.write_text(f"[run]\nsource = {sources}\ndata_file = {WORK / 'coverage'}\n")
    arguments = ["--cov", "--cov-report=", "--cov-context=test", f"--cov-config={settings}"]
    arguments += [f"--junitxml={WORK / 'tests.xml'}", "--numprocesses=logical", "--timeout=900"]
    # Tests that count calls or look at the clock fail while lines are noted.
    subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments], cwd=ROOT, check=False)


def covering_tests() -> tuple[Lines, Tests]:
    """The tests that run a line, by file and line; and the seconds that each of them takes."""
    from coverage import CoverageData

    data = CoverageData(str(WORK / "coverage"))
    data.read()
    covering = {}
    for file in data.measured_files():
        name = str(Path(file).resolve().relative_to(ROOT))
        for line, contexts in data.contexts_by_lineno(file).items():
            tests = {each.partition("|")[0].partition("[")[0] for each in contexts if each}
            covering[name, line] = tests
    seconds: Tests = defaultdict(float)
    for case in ElementTree.parse(WORK / "tests.xml").iter("testcase"):
        file = f"{case.get('classname', '').replace('.', '/')}.py"
        seconds[f"{file}::{case.get('name', '').partition('[')[0]}"] += float(case.get("time", 0))
    return covering, seconds


def drawn(only: str, count: int, seed: int) -> list[tuple[str, Mutation]]:
    """Some of all faults, the same ones whenever the files are the same."""
    files = sorted([*ROOT.glob("engine/**/*.py"), *ROOT.glob("handlers/**/*.py")])
    names = [each.relative_to(ROOT).as_posix() for each in files]
    faults = [
        (name, fault)
        for name in names
        if name.startswith(only)
        for fault in mutations((ROOT / name).read_bytes())
    ]
    return random.Random(seed).sample(faults, min(count, len(faults)))


def copy_of_the_package(number: int) -> Path:
    """A copy of what git knows of, in which a worker changes files; `path` leads to it."""
    place = WORK / f"copy-{number}"
    shutil.rmtree(place, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True,
                            capture_output=True, check=True)  # fmt: skip
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (place / "camshaft" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / "camshaft" / name)
    return place / "camshaft"


def missed() -> list[tuple[str, Mutation]]:
    """The faults that no test found in the last run."""
    names = [each.name for each in fields(Mutation)]
    left = [row for row in results() if not row["found"]]
    return [(row["file"], Mutation(**{name: row[name] for name in names})) for row in left]


def results() -> list[dict[str, Any]]:
    """What came out of the last run."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def judged(copies: SimpleQueue[Path], tests: Try, drawn: tuple[str, Mutation]) -> dict[str, Any]:
    """Try one fault in a copy that no other worker uses; say what came out."""
    name, fault = drawn
    copy = copies.get()
    try:
        original = (copy / name).read_bytes()
        before = (copy / name).stat().st_mtime
        (copy / name).write_bytes(fault.of(original))
        os.utime(copy / name, (before + LATER, before + LATER))
        try:
            found = tests(copy, name, fault)
        finally:
            (copy / name).write_bytes(original)
            os.utime(copy / name, (before, before))
    finally:
        copies.put(copy)
    text = original[fault.begin : fault.end].decode()
    row = {"file": name, "before": text, "found": found, **asdict(fault)}
    print("." if found else f"\n{name}:{fault.line} {fault.kind}: {text!r} -> {fault.after!r}",
          end="", flush=True)  # fmt: skip
    return row


def by_line(lines: Lines, seconds: Tests, copy: Path, name: str, fault: Mutation) -> str:
    """The first failing test among the fastest of those that run the line."""
    tests = sorted(lines.get((name, fault.line), ()), key=lambda test: seconds[test])
    totals = accumulate(seconds[each] for each in tests)
    chosen = [each for each, total in zip(tests, totals, strict=True) if total < MOST_TESTS]
    return failing(copy, chosen, 10 * MOST_TESTS) if chosen else ""


def by_room(copy: Path, name: str, fault: Mutation) -> str:
    """The first failing test among those of the room, and those in other processes."""
    return failing(copy, [room_of(name)], 900) or failing(copy, OTHER_PROCESSES, 1800)


def room_of(name: str) -> str:
    """The folder of tests that is named as the folder of a file, or as one around it."""
    folder = ROOT / "tests" / Path(name).parent
    while not folder.is_dir():
        folder = folder.parent
    return folder.relative_to(ROOT).as_posix()


def failing(copy: Path, tests: Sequence[str], limit: float) -> str:
    """The first test that fails in a copy, or "a time-out"; empty if all pass."""
    arguments = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "--timeout=120", *tests]
    paths = {"PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            **{"cwd": copy, "env": {**os.environ, **paths}, "timeout": limit},
            **{"capture_output": True, "text": True, "check": False},
        )
    except subprocess.TimeoutExpired:
        return "a time-out"
    if done.returncode in (0, 5):  # 5: there was no test
        return ""
    lines = [each for each in done.stdout.splitlines() if each.startswith(("FAILED", "ERROR"))]
    return (
        lines[0] if lines else f"exit {done.returncode}: {done.stdout[-300:]}{done.stderr[-300:]}"
    )


def tell(rows: list[dict[str, Any]]) -> None:
    """Print how many faults were found, by room."""
    rooms = Counter("/".join(str(row["file"]).split("/")[:2]) for row in rows)
    missed = Counter("/".join(str(row["file"]).split("/")[:2]) for row in rows if not row["found"])
    print(f"\n\n{'room':32} faults  found")
    for room, count in sorted(rooms.items()):
        print(f"{room:32} {count:6} {count - missed[room]:6}")
    total, left = len(rows), missed.total()
    print(f"{total} faults, {total - left} found ({100 * (total - left) / max(total, 1):.1f} %)")


if __name__ == "__main__":
    main()

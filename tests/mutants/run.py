"""Put faults into the package, one at a time, and see whether a test finds each: `make mutants`.

A fault is tried against the tests that run its line. What they miss is listed, and tried once more
with `--again`: against all tests of its room, slow ones too, and those in other processes. What is
left is either a missing test, or a change without a difference: somebody has to look at it. What is
known of a fault stays in build/mutants/results.jsonl, so that a run that was interrupted can be
continued.

    python tests/mutants/run.py --count 300 --seed 0
    python tests/mutants/run.py --again
"""

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from compileall import compile_dir
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from functools import partial
from itertools import accumulate, count
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NoReturn
from xml.etree import ElementTree

from mutations import Mutation, mutations

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "mutants"
OTHER_PROCESSES = ("tests/faults", "tests/distributed", "tests/random_runs")
"""Tests whose runs are in processes of their own, where no one sees which lines they run."""
MOST_OF_ROOM, MOST_TESTS = 10.0, 20.0
"""Seconds of tests that a fault is tried against: of its own room at first, and then of all."""
later = count(10**6)
"""Seconds by which a changed file is newer, so that nothing compiled of it is taken for it."""
sound, broken = set[str](), set[str]()
"""Tests that pass without a fault, and those that do not pass in a copy."""
PRELOADED = (
    *("torch", "torch._dynamo", "numpy", "sklearn.datasets", "torchmetrics.classification"),
    *("ignite.distributed", "ignite.engine", "pytest"),
)
"""What the process has imported already that runs tests."""

RESULTS = WORK / "results.jsonl"
Tests = dict[str, float]
Lines = dict[tuple[str, int], set[str]]
Try = Callable[["Copy", str, Mutation], str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=300, help="faults to try (300)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (0)")
    parser.add_argument("--only", default="", help="of files whose path begins so")
    parser.add_argument("--again", action="store_true", help="try what was missed, by more tests")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    WORK.mkdir(parents=True, exist_ok=True)
    if not (WORK / "coverage").exists():
        see_which_tests_run_what()
    covering, seconds = covering_tests()
    faults = drawn(options.only, options.count, options.seed)
    rows = [row for row in results() if (row["file"], mutation_of(row)) in faults]
    known = {(row["file"], mutation_of(row)) for row in rows if row["found"] or not options.again}
    rows = [row for row in rows if row["found"] or not options.again]
    RESULTS.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    copies: SimpleQueue[Copy] = SimpleQueue()
    for number in range(options.workers):
        copies.put(Copy(number))
    tests = by_room if options.again else partial(by_line, covering, seconds)
    left = [each for each in faults if each not in known]
    with ThreadPoolExecutor(options.workers) as pool, RESULTS.open("a", buffering=1) as file:
        while left:
            found = []
            for done in as_completed([pool.submit(judged, copies, tests, each) for each in left]):
                found.append(done.result())
                file.write(f"{json.dumps(found[-1])}\n")
            left = those_of_broken_tests(copies, found)
            rows += [row for row in found if (row["file"], mutation_of(row)) not in left]
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


class Copy:
    """A copy of what git knows of, in which a worker changes files; and a process for its tests."""

    def __init__(self, number: int) -> None:
        place = WORK / f"copy-{number}"
        shutil.rmtree(place, ignore_errors=True)
        command = ["git", "ls-files", "-co", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True)
        self.path = place / "camshaft"
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.path / name)
        for name in ("engine", "handlers"):
            compile_dir(self.path / name, quiet=2)
        self._server = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True},
        )

    @contextmanager
    def changed(self, name: str, text: bytes) -> Generator[None]:
        """A file with another text, for as long as this lasts."""
        file = self.path / name
        original, before = file.read_bytes(), file.stat().st_mtime
        file.write_bytes(text)
        os.utime(file, (before, before + next(later)))
        try:
            yield
        finally:
            file.write_bytes(original)
            os.utime(file, (before, before))

    def failing(self, tests: Sequence[str], limit: float, *, slow: bool = False) -> str:
        """The first test that fails, or "a time-out"; empty if all pass."""
        if not tests:
            return ""
        options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "--timeout=120"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # what is imported already
        options += ["-m", "not soak and not gpu"] if slow else []
        options += (option for each in broken for option in ("--deselect", each))
        request = {"path": str(self.path), "arguments": [*options, *tests], "limit": limit}
        self._server.stdin.write(f"{json.dumps(request)}\n")
        self._server.stdin.flush()
        code = json.loads(self._server.stdout.readline())
        if code in (0, 5):  # 5: there was no test
            return ""
        if code is None or code < 0 or code == 3:  # 3: pytest itself has failed
            return "a time-out" if code is None else "the end of pytest"
        text = (self.path.parent / "output.txt").read_text(errors="replace")
        lines = [each for each in text.splitlines() if each.startswith(("FAILED ", "ERROR "))]
        if not lines:
            raise RuntimeError(f"pytest did not run, exit code {code}:\n{text[-2000:]}")
        return lines[0]


def serve() -> None:
    """Run tests in forked processes, as the lines of standard input say, and answer by a line."""
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        given = json.loads(line)
        if (process := os.fork()) == 0:
            run_tests(Path(given["path"]), given["arguments"])
        end, code = time.monotonic() + given["limit"], None
        while code is None and time.monotonic() < end:
            time.sleep(0.02)
            done, status = os.waitpid(process, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if done else None
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # those that tests have left, too
        if code is None:
            os.waitpid(process, 0)
        print(json.dumps(code), flush=True)


def run_tests(path: Path, arguments: Sequence[str]) -> NoReturn:
    """Run tests of a copy in this process, a forked one."""
    os.setsid()
    os.chdir(path)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(path.parent / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ["PYTHONPATH"] = str(path.parent)
    sys.path.insert(0, str(path.parent))
    sys.argv = ["pytest"]
    os._exit(importlib.import_module("pytest").main(list(arguments)))


def mutation_of(row: dict[str, Any]) -> Mutation:
    """The fault of a row."""
    return Mutation(**{each.name: row[each.name] for each in fields(Mutation)})


def results() -> list[dict[str, Any]]:
    """What came out of earlier runs; what they did not try is tried by the next one."""
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def judged(copies: SimpleQueue[Copy], tests: Try, drawn: tuple[str, Mutation]) -> dict[str, Any]:
    """Try one fault in a copy that no other worker uses; say what came out."""
    name, fault = drawn
    copy = copies.get()
    try:
        original = (copy.path / name).read_bytes()
        with copy.changed(name, fault.of(original)):
            found = tests(copy, name, fault)
    finally:
        copies.put(copy)
    text = original[fault.begin : fault.end].decode()
    row = {"file": name, "before": text, "found": found, **asdict(fault)}
    print("." if found else f"\n{name}:{fault.line} {fault.kind}: {text!r} -> {fault.after!r}",
          end="", flush=True)  # fmt: skip
    return row


def those_of_broken_tests(
    copies: SimpleQueue[Copy], rows: Sequence[dict[str, Any]]
) -> list[tuple[str, Mutation]]:
    """The faults that were found by tests that fail without them, too; these are left out then."""
    names = [row["found"].partition(" ")[2].partition(" - ")[0] for row in rows]
    test_of = [name if "::" in name else "" for name in names]
    left = {*filter(None, test_of)} - sound
    copy = copies.get()
    while left and (first := copy.failing(sorted(left), 3600)):
        test = first.partition(" ")[2].partition(" - ")[0]
        broken.add(test)
        left.discard(test)
    copies.put(copy)
    sound.update(left)
    both = zip(rows, test_of, strict=True)
    return [(row["file"], mutation_of(row)) for row, test in both if test in broken]


def by_line(lines: Lines, seconds: Tests, copy: Copy, name: str, fault: Mutation) -> str:
    """The first failing test among those that run the line: fast ones, at first of the room."""
    tests = sorted(lines.get((name, fault.line), ()), key=lambda test: seconds[test])
    near = [each for each in tests if each.startswith(f"{room_of(name)}/")]
    first = set(within(MOST_OF_ROOM, near, seconds))
    others = [each for each in within(MOST_TESTS, tests, seconds) if each not in first]
    return copy.failing(sorted(first), 300) or copy.failing(others, 900)


def within(most: float, tests: Sequence[str], seconds: Tests) -> Iterator[str]:
    """The first tests that take so many seconds together, by the files that they are in."""
    totals = accumulate(seconds[each] for each in tests)
    return (each for each, total in zip(tests, totals, strict=True) if total < most)


def by_room(copy: Copy, name: str, fault: Mutation) -> str:
    """The first failing test among those of the room, and those in other processes."""
    room = room_of(name)
    return copy.failing([room], 1800, slow=True) or copy.failing(OTHER_PROCESSES, 1800)


def room_of(name: str) -> str:
    """The folder of tests that is named as the folder of a file, or as one around it."""
    folder = ROOT / "tests" / Path(name).parent
    while not folder.is_dir():
        folder = folder.parent
    return folder.relative_to(ROOT).as_posix()


def tell(rows: list[dict[str, Any]]) -> None:
    """Print how many faults were found, by room."""
    rooms = Counter("/".join(str(row["file"]).split("/")[:2]) for row in rows)
    missed = Counter("/".join(str(row["file"]).split("/")[:2]) for row in rows if not row["found"])
    print(f"\n\n{'room':32} faults  found")
    for room, number in sorted(rooms.items()):
        print(f"{room:32} {number:6} {number - missed[room]:6}")
    total, left = len(rows), missed.total()
    print(f"{total} faults, {total - left} found ({100 * (total - left) / max(total, 1):.1f} %)")


if __name__ == "__main__":
    main()

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
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
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
from typing import Any
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
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [
        *("torch", "torch._dynamo", "numpy", "sklearn.datasets", "torchmetrics.classification"),
        *(
            "ignite.distributed",
            "ignite.engine",
            "hypothesis",
            "pytest",
            "_hypothesis_pytestplugin",
        ),
    ]
)

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
    faults = drawn(options.only, options.count, options.seed)
    rows = [row for row in results() if (row["file"], mutation_of(row)) in faults]
    known = {(row["file"], mutation_of(row)) for row in rows if row["found"] or not options.again}
    rows = [row for row in rows if row["found"] or not options.again]
    RESULTS.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(options.workers):
        copies.put(copy_of_the_package(number))
    with ThreadPoolExecutor(options.workers) as pool, RESULTS.open("a", buffering=1) as file:
        tests = by_room if options.again else partial(by_line, covering, seconds)
        left = [each for each in faults if each not in known]
        for done in as_completed(pool.submit(judged, copies, tests, each) for each in left):
            row = done.result()
            file.write(f"{json.dumps(row)}\n")
            rows.append(row)
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
    for name in ("engine", "handlers"):
        compile_dir(place / "camshaft" / name, quiet=2)
    return place / "camshaft"


def mutation_of(row: dict[str, Any]) -> Mutation:
    """The fault of a row."""
    return Mutation(**{each.name: row[each.name] for each in fields(Mutation)})


def results() -> list[dict[str, Any]]:
    """What came out of earlier runs; what they did not try is tried by the next one."""
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def judged(copies: SimpleQueue[Path], tests: Try, drawn: tuple[str, Mutation]) -> dict[str, Any]:
    """Try one fault in a copy that no other worker uses; say what came out."""
    name, fault = drawn
    copy = copies.get()
    try:
        original = (copy / name).read_bytes()
        while True:
            with changed(copy / name, fault.of(original)):
                found = tests(copy, name, fault)
            if not found or is_sound(copy, found):
                break
    finally:
        copies.put(copy)
    text = original[fault.begin : fault.end].decode()
    row = {"file": name, "before": text, "found": found, **asdict(fault)}
    print("." if found else f"\n{name}:{fault.line} {fault.kind}: {text!r} -> {fault.after!r}",
          end="", flush=True)  # fmt: skip
    return row


@contextmanager
def changed(file: Path, text: bytes) -> Generator[None]:
    """A file with another text, for as long as this lasts."""
    original, before = file.read_bytes(), file.stat().st_mtime
    file.write_bytes(text)
    os.utime(file, (before, before + next(later)))
    try:
        yield
    finally:
        file.write_bytes(original)
        os.utime(file, (before, before))


def is_sound(copy: Path, found: str) -> bool:
    """True if the test that failed passes without the fault; one that does not is left out."""
    test = found.partition(" ")[2].partition(" - ")[0]
    if found == "a time-out" or test in sound:
        return True
    passes = not failing(copy, [test], 300)
    (sound if passes else broken).add(test)
    return passes


def by_line(lines: Lines, seconds: Tests, copy: Path, name: str, fault: Mutation) -> str:
    """The first failing test among those that run the line: fast ones, at first of the room."""
    tests = sorted(lines.get((name, fault.line), ()), key=lambda test: seconds[test])
    near = [each for each in tests if each.startswith(f"{room_of(name)}/")]
    first = set(within(MOST_OF_ROOM, near, seconds))
    others = [each for each in within(MOST_TESTS, tests, seconds) if each not in first]
    return failing(copy, sorted(first), 300) or failing(copy, others, 900)


def within(most: float, tests: Sequence[str], seconds: Tests) -> Iterator[str]:
    """The first tests that take so many seconds together, by the files that they are in."""
    totals = accumulate(seconds[each] for each in tests)
    return (each for each, total in zip(tests, totals, strict=True) if total < most)


def by_room(copy: Path, name: str, fault: Mutation) -> str:
    """The first failing test among those of the room, and those in other processes."""
    room = room_of(name)
    return failing(copy, [room], 1800, slow=True) or failing(copy, OTHER_PROCESSES, 1800)


def room_of(name: str) -> str:
    """The folder of tests that is named as the folder of a file, or as one around it."""
    folder = ROOT / "tests" / Path(name).parent
    while not folder.is_dir():
        folder = folder.parent
    return folder.relative_to(ROOT).as_posix()


def failing(copy: Path, tests: Sequence[str], limit: float, *, slow: bool = False) -> str:
    """The first test that fails in a copy, or "a time-out"; empty if all pass."""
    if not tests:
        return ""
    output = copy.parent / "output.txt"
    process = processes.Process(target=run_tests, args=(copy, tests, output, [*broken], slow))
    process.start()
    process.join(limit)
    is_late = process.is_alive()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # those that tests have left, too
    process.join()
    if is_late:
        return "a time-out"
    if process.exitcode in (0, 5):  # 5: there was no test
        return ""
    text = output.read_text(errors="replace")
    lines = [each for each in text.splitlines() if each.startswith(("FAILED ", "ERROR "))]
    if not lines:
        raise RuntimeError(f"pytest did not run, exit code {process.exitcode}:\n{text[-2000:]}")
    return lines[0]


def run_tests(
    copy: Path, tests: Sequence[str], output: Path, broken: Sequence[str], slow: bool
) -> None:
    """Run tests of a copy in a process in which the large packages are imported already."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which the server ignores
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(copy)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.environ["PYTHONPATH"] = str(copy.parent)
    sys.path.insert(0, str(copy.parent))
    sys.argv = ["pytest"]
    pytest = __import__("pytest")
    options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "--timeout=120"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # what is imported already
    if slow:
        options += ["-m", "not soak and not gpu"]
    options += (option for each in broken for option in ("--deselect", each))
    os._exit(pytest.main([*options, *tests]))


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

"""Measures Camshaft against a raw loop and other engines; writes what it finds to the docs.

Each round starts a fresh process for every subject. They take turns, epoch by epoch and in random
order, so that a machine that is slow for a while is slow for all; one runs at a time. Times are
CPU times, and what is compared was taken in the same turn.
"""

import argparse
import json
import os
import random
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import page
from compare import Turns
from laps import TURN
from measure import IMPORTS

Process = Popen[str]
HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "project" / "benchmarks.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short round, nothing written")
    parser.add_argument(
        "--here",
        action="store_true",
        help="show the page's figures in brackets, and leave the page",
    )
    parser.add_argument("--subjects", nargs="+", choices=IMPORTS, default=list(IMPORTS))
    options = parser.parse_args()
    subjects = ["raw_loop", *(name for name in options.subjects if name != "raw_loop")]
    count = 1 if options.quick else options.rounds
    turns: Turns = []
    for number in range(1, count + 1):
        print(f"round {number} of {count}", file=sys.stderr)
        turns += by_turn(take_round(subjects, options.quick))
    figures = page.figures(turns, count)
    print(page.beside(figures, PAGE) if options.here else figures)
    if not options.here and not options.quick and len(subjects) == len(IMPORTS):
        page.insert(PAGE, figures)


def take_round(subjects: list[str], quick: bool) -> dict[str, dict[str, list[float]]]:
    """Let fresh processes take turns until each has printed its figures."""
    waiting = {subject: start(subject, quick) for subject in subjects}
    figures: dict[str, dict[str, list[float]]] = {}
    try:
        while waiting:
            for subject in random.sample(list(waiting), len(waiting)):
                if (line := go_on(waiting[subject])) != TURN:
                    figures[subject] = json.loads(line)
                    waiting.pop(subject).communicate()
    finally:
        for process in waiting.values():
            process.kill()
    return figures


def start(subject: str, quick: bool) -> Process:
    """A process that waits for its first turn."""
    command = [sys.executable, str(HERE / "measure.py"), subject, *["--quick"] * quick]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return Popen(command, env=environment, stdin=PIPE, stdout=PIPE, text=True)


def go_on(process: Process) -> str:
    """Give a process its turn; what it says at the end of it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    if not (line := process.stdout.readline()):
        raise ChildProcessError("a subject gave no figures; what it raised is above")
    return line.strip()


def by_turn(taken: dict[str, dict[str, list[float]]]) -> Turns:
    """The figures of each turn; what was taken less often than others is there again."""
    most = max(len(values) for figures in taken.values() for values in figures.values())
    return [
        {
            subject: {key: values[turn % len(values)] for key, values in figures.items()}
            for subject, figures in taken.items()
        }
        for turn in range(most)
    ]


if __name__ == "__main__":
    main()

"""What a process holds stays the same, however long it trains and however often it starts.

Compared are counts that no other process changes: blocks of Python's memory, bytes that C code has,
objects by type, threads and files. The long forms compare its resident memory as well.

What grows each time grows in every part of the process; a table of Python's that doubles, such as
that of interned strings (3.8 MB), does so in one part, and what waits to be written comes and goes.
Hence the middle one of the parts counts.
"""

import json
from itertools import pairwise
from pathlib import Path
from statistics import median_low

import pytest

EVERYTHING = Path(__file__).with_name("everything.py")


class Growth:
    """What came in a part of a process that does something so many times; at first it settles."""

    def __init__(self, times, looks):
        self.times = times
        _, *looks = looks
        self.of = {
            name: median_low(after[name] - before[name] for before, after in pairwise(looks))
            for name in looks[0].keys() - {"task", "types"}
        }
        self.resident = looks[-1]["resident"] - looks[0]["resident"]
        parts = [(before["types"], after["types"]) for before, after in pairwise(looks)]
        self.types = {
            name: more
            for name in looks[-1]["types"]
            if (more := median_low(a.get(name, 0) - b.get(name, 0) for b, a in parts)) > times / 2
        }

    def is_flat(self):
        """No block, object or 50 bytes of C for each time; and no thread or file at all."""
        return (
            self.of["blocks"] < self.times / 2 + 200
            and self.of["malloc"] < 50 * self.times + 10_000
            and not self.types
            and self.of["threads"] <= 0
            and self.of["files"] <= 0
        )

    def __repr__(self):
        return f"{self.of} in {self.times} times, of types {self.types}, resident {self.resident}"


@pytest.fixture
def growth(processes, tmp_path):
    """Do tasks of `everything.py` in one process, and see what grows in each."""

    def run(numbers, leak=""):
        tasks = [f"{task}={number}" for task, number in numbers.items()]
        ran = processes.run(EVERYTHING, tmp_path / "run", *tasks, "--leak", leak)
        looks = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        of = {task: [each for each in looks if each["task"] == task] for task in numbers}
        return {task: Growth(number // len(of[task]), of[task]) for task, number in numbers.items()}

    return run


SHORT = {"one_engine": 30, "new_engines": 30, "evaluations": 300, "iterations": 1500}
LEAKY = SHORT | {"evaluations": 3000, "iterations": 6000}
"""Enough for a hundred bytes each time to be more than what settles."""
LONG = {"one_engine": 1000, "new_engines": 1000, "evaluations": 10_000, "iterations": 200_000}


@pytest.mark.soak
def test_nothing_grows(growth):
    grown = growth(SHORT)
    assert all(each.is_flat() for each in grown.values()), grown


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("leak", "task"),
    [
        *(("python", "iterations"), ("malloc", "evaluations")),
        *(("file", "one_engine"), ("engine", "new_engines")),
    ],
)
def test_a_hundred_bytes_a_file_or_an_engine_each_time_would_be_seen(growth, leak, task):
    (grown,) = growth({task: LEAKY[task]}, leak=leak).values()
    assert not grown.is_flat(), grown


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("task", LONG)
def test_nothing_grows_in_a_long_time(growth, task):
    (grown,) = growth({task: LONG[task]}).values()
    assert grown.is_flat(), grown
    assert grown.resident < 100 * LONG[task] + 2**23, grown

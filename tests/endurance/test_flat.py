"""What a process holds stays the same, however long it trains and however often it starts.

Compared is what it holds after two thirds and at the end, in counts that no other process changes:
blocks of Python's memory, bytes that C code has, objects by type, threads and files. The long forms
compare its resident memory as well.
"""

import json
from pathlib import Path

import pytest

EVERYTHING = Path(__file__).with_name("everything.py")


class Growth:
    """What came in the last third of a process that does something so many times."""

    def __init__(self, processes, directory, task, number, leak=""):
        ran = processes.run(EVERYTHING, task, number, directory, "--leak", leak)
        lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
        _, before, after = map(json.loads, lines)
        types = before.pop("types"), after.pop("types")
        self.times = number // 3
        self.of = {name: after[name] - before[name] for name in before}
        self.types = {
            name: more
            for name in {*types[0], *types[1]}
            if (more := types[1].get(name, 0) - types[0].get(name, 0)) > self.times // 50 + 5
        }

    def is_flat(self):
        """Not one block, and no 50 bytes of C, for each time; and no thread or file at all."""
        return (
            self.of["blocks"] < self.times / 2 + 200
            and self.of["malloc"] < 50 * self.times + 10_000
            and not self.types
            and self.of["threads"] <= 0
            and self.of["files"] <= 0
        )

    def __repr__(self):
        return f"{self.of}, and of types {self.types} in {self.times} times"


@pytest.fixture
def growth(processes, tmp_path):
    """Do a task of `everything.py`, and see what has grown."""
    return lambda *what, **options: Growth(processes, tmp_path / "run", *what, **options)


SHORT = [("iterations", 3000), ("evaluations", 900), ("one_engine", 15), ("new_engines", 15)]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "number"), SHORT)
def test_nothing_grows(growth, task, number):
    grown = growth(task, number)
    assert grown.is_flat(), grown


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("task", "leak"), [("iterations", "python"), ("evaluations", "malloc")])
def test_a_hundred_bytes_each_time_would_be_seen(growth, task, leak):
    grown = growth(task, dict(SHORT)[task], leak=leak)
    assert not grown.is_flat(), grown


LONG = [
    ("iterations", 200_000),
    ("evaluations", 10_000),
    ("one_engine", 1000),
    ("new_engines", 1000),
]


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("task", "number"), LONG)
def test_nothing_grows_in_a_long_time(growth, task, number):
    grown = growth(task, number)
    assert grown.is_flat(), grown
    assert grown.of["resident"] < 100 * grown.times + 2**23, grown

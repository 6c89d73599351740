"""A million iterations with everything on: what the process and its directory hold stays the same.

The environment variable ITERATIONS sets another number, from 30,000 on, to try the test out.
"""

import json
import os
from pathlib import Path
from shutil import copytree

import pytest

HERE = Path(__file__).parent
ITERATIONS = int(os.environ.get("ITERATIONS", "1_000_000"))
LOOKS = [1000, max(2000, ITERATIONS // 100), ITERATIONS // 10, ITERATIONS]
ROWS = {"rows.csv", "rows.jsonl", "board"}
LOGS = ROWS | {"journal.jsonl", "ranks"}
"""They grow with the run: rows, and signs of life and warnings, which do not come evenly."""
MOST = {
    **{"blocks": 2000, "objects": 200, "malloc": 2**23, "resident": 2**23},
    **{"threads": 0, "files": 0, "children": 0},
}
"""By how much each may grow after a hundredth of the run: far less than a byte an iteration of
Python's memory; tables that double and arenas, but for 16 bytes an iteration at most, of C's."""


def lines(ran):
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"iteration')]


@pytest.mark.soak
@pytest.mark.timeout(14_400)
def test_after_a_hundredth_of_a_million_iterations_nothing_but_logs_grows(processes, tmp_path):
    ran = processes.run(HERE / "million.py", tmp_path / "run", *LOOKS)
    print(ran.stdout)
    _, settled, *later = lines(ran)
    assert [each["iteration"] for each in later] == LOOKS[2:]
    for name, most in MOST.items():
        assert all(each[name] - settled[name] <= most for each in later), (name, settled, later)

    for each in later:
        number, size = (each["files of the run"][name] for name in ("number", "size"))
        before = settled["files of the run"]
        assert number.keys() == before["number"].keys()
        assert number["checkpoints"] <= 3 * 5  # the latest two and the best one
        for name in number.keys() - LOGS:
            assert size[name] / number[name] < 1.1 * before["size"][name] / before["number"][name]
        for name in ROWS:
            share = each["iteration"] / settled["iteration"]
            assert number[name] == 1
            assert size[name] < 1.2 * share * before["size"][name]

    early, late = tmp_path / "run-early", tmp_path / "run"
    warm = copytree(early, tmp_path / "warm")
    ran = processes.run(HERE / "resume.py", LOOKS[-1] + 1, warm, early, late)
    _, first, last = lines(ran)
    print(first, last, sep="\n")
    assert (first["iteration"], last["iteration"]) == (LOOKS[0] + 1, LOOKS[-1] + 1)
    assert last["calls"] < 1.25 * first["calls"]  # of more checkpoints and of windows that are full
    assert last["read"] < first["read"] + 2**18

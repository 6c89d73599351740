"""Every row of the acceptance table has its code and its test, or says why it is left out."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "tests" / "features.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text().splitlines()
    if re.match(r"\| \d+ \|", line)
]


@cache
def functions(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_all_rows_are_there_once_and_in_order():
    assert [int(row[0].strip("| ")) for row in ROWS] == [*range(1, 136)]


def test_every_row_names_code_and_a_test_that_exist_or_a_reason():
    wrong = []
    for number, title, code, test, *_ in ROWS:
        assert title
        if code.startswith("left out: "):
            assert len(code) > len("left out: ") + 20, f"row {number} gives no reason"
            continue
        files = re.findall(r"\]\((?:\.\./)([^)]+)\)", code)
        tests = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", test)
        assert files, f"row {number} names no file"
        assert tests, f"row {number} names no test"
        wrong += [f"{number}: no {path}" for path in files if not (ROOT / path).exists()]
        for path, name in tests:
            if not (ROOT / path).exists() or (name and name not in functions(path)):
                wrong += [f"{number}: no {path}::{name}"]
    assert wrong == []

"""Every row of the acceptance table has its code and its test, or says why it is left out."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "features.md"
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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("| "))
def test_a_row_names_code_and_a_test_that_exist_or_a_reason(row):
    number, title, code, test = row[:4]
    assert title
    if code.startswith("left out: "):
        assert len(code) > len("left out: ") + 20
        return
    files = re.findall(r"\]\((?:\.\./)([^)]+)\)", code)
    assert files, f"row {number} names no file"
    assert all((ROOT / name).exists() for name in files)
    tests = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", test)
    assert tests, f"row {number} names no test"
    for path, name in tests:
        assert (ROOT / path).exists()
        assert not name or name in functions(path), f"{path} has no {name}"

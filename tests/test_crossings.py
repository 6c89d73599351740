"""The page of libraries says what the scripts of tests/crossings do, which need those libraries."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/project/works-with.md"
ROW = re.compile(r"^\| (\S+) (\S+) \| (.+?) \| (exact|reported) \| .+ \|$", re.MULTILINE)
pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="needs a checkout")


def scripts():
    """The library, the sentence and the verdict of each script, and whether it is imported."""
    for path in ROOT.glob("tests/crossings/crossing_*.py"):
        for function in ast.parse(path.read_text()).body:
            for row in getattr(function, "decorator_list", []):
                if isinstance(row, ast.Call) and row.func.id in ("exact", "told"):
                    what = " ".join(ast.get_docstring(function).split()).rstrip(".")
                    verdict = {"exact": "exact", "told": "reported"}[row.func.id]
                    yield row.args[0].value, what, verdict


def pins():
    """The version of each library that `make crossings` installs, or finds in .venv."""
    for path in (
        "constraints.txt",
        "tests/crossings/requirements.txt",
        "tests/crossings/alone.txt",
    ):
        for line in (ROOT / path).read_text().splitlines():
            if match := re.match(r"([\w.-]+)(?:\[.*\])?==(\S+)", line):
                yield name(match[1]), match[2]


def name(library):
    return re.sub(r"[-_.]+", "-", library).lower()


def test_the_page_has_a_row_for_each_script_and_no_other():
    rows = [(library, what, verdict) for library, _, what, verdict in ROW.findall(PAGE.read_text())]
    assert sorted(rows) == sorted(scripts())


def test_the_page_names_the_versions_that_are_installed():
    versions = dict(pins())
    found = {(name(each[0]), each[1]) for each in ROW.findall(PAGE.read_text())}
    assert {library: versions.get(library) for library, _ in found} == dict(found)


def test_sixty_libraries_are_tried():
    assert len({library for library, _, _ in scripts()}) >= 60

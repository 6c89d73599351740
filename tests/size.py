"""Print how many lines core, package and tests have, and how many are code; fail above.

The core is all but the rings: `handlers/cluster`, `handlers/bridges` and `handlers/tools`. Code is
what is no blank line, comment, docstring or import. A change that needs a higher bound says why in
its message: the package once doubled within two releases, and nobody had decided that.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE, LINES, CODE, TESTS = 40_410, 58_320, 34_670, 88_710
RINGS = tuple(f"handlers/{ring}/" for ring in ("cluster", "bridges", "tools"))


def code_lines(text: str) -> int:
    """The number of lines of code in the text of a module."""
    other: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if (is_text and isinstance(node.value.value, str)) or isinstance(
            node, ast.Import | ast.ImportFrom
        ):
            other.update(range(node.lineno, node.end_lineno + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(1 for n, line in lines if line.strip() and line.strip()[0] != "#" and n not in other)


texts = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for room in ("engine", "handlers")
    for path in ROOT.glob(f"{room}/**/*.py")
}
core = sum(text.count("\n") for name, text in texts.items() if not name.startswith(RINGS))
lines, code = sum(text.count("\n") for text in texts.values()), sum(map(code_lines, texts.values()))
# A script a library: they grow with the page that they fill, and not with the package.
scripts = {*ROOT.glob("tests/crossings/crossing_*.py")}
tests = [each.read_text().count("\n") for each in {*ROOT.glob("tests/**/*.py")} - scripts]
print(
    f"engine and handlers: {lines:,} lines in {len(texts)} files, {code:,} of code; core {core:,}"
)
print(f"tests: {sum(tests):,} lines in {len(tests):,} files")
if core > CORE or lines > LINES or code > CODE or sum(tests) > TESTS:
    bounds = f"{CORE:,}, {LINES:,}, {CODE:,} or, of tests, {TESTS:,}"
    sys.exit(f"more than {bounds} lines: see {Path(__file__).name}")

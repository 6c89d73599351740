"""Print how many lines the package has, and how many of them are code; fail above the bound.

Code is what is no blank line, comment, docstring or import. A change that needs a higher bound says
why in its message: the package once doubled within two releases, and nobody had decided that.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINES, CODE = 54_200, 31_700


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


texts = [
    path.read_text() for room in ("engine", "handlers") for path in ROOT.glob(f"{room}/**/*.py")
]
lines, code = sum(text.count("\n") for text in texts), sum(map(code_lines, texts))
print(f"engine and handlers: {lines:,} lines in {len(texts)} files, {code:,} of code")
if lines > LINES or code > CODE:
    sys.exit(f"more than {LINES:,} lines or {CODE:,} of code: see {Path(__file__).name}")

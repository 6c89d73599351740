"""The pages of the examples, made of the scripts: the docstring is the text, the code follows."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "examples" / "index.md"
TITLE = re.compile(r"\[([^]]+)\]\(\.\./\.\./examples/(\w+)\.py\)")
INDENTED = re.compile(r"(?m)(?:^ {4}.*\n?|^\n(?= {4}))+")


def example_pages() -> dict[str, Path]:
    """The scripts, by the place of their pages on the site."""
    return {f"examples/{each.stem}.md": each for each in sorted((ROOT / "examples").glob("*.py"))}


def example_page(path: Path) -> str:
    """The page of a script, whose title is the text of its link on the page of all examples."""
    titles = {name: title for title, name in TITLE.findall(INDEX.read_text())}
    if path.stem not in titles:
        raise SystemExit(f"{INDEX.relative_to(ROOT)} has no link to {path.relative_to(ROOT)}")
    source = path.read_text()
    module = ast.parse(source)
    about = ast.get_docstring(module) or ""
    code = "\n".join(source.splitlines()[module.body[0].end_lineno :]).strip()
    text = INDENTED.sub(_commands, f"{about}\n")
    return f'# {titles[path.stem]}\n\n{text}\n```python title="examples/{path.name}"\n{code}\n```\n'


def _commands(match: re.Match[str]) -> str:
    lines = [line[4:] for line in match.group(0).strip("\n").split("\n")]
    return "\n```console\n" + "\n".join(lines) + "\n```\n"

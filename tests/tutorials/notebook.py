"""Writes a tutorial as a notebook: its blocks as cells, and what it shows as their outputs.

    python tests/tutorials/notebook.py docs/tutorials/first-run.md docs/tutorials/first-run.ipynb

The page is the source: change that, and write the notebook anew.
"""

import re
import sys
from pathlib import Path

import nbformat
from follow import BLOCK, COMMAND, SHOWN

v4 = nbformat.v4
INSTALL = """\
# In Colab, or wherever Camshaft is not installed yet.
from importlib.util import find_spec

if find_spec("camshaft") is None:
    %pip install --quiet "camshaft[examples,report]"
"""


def notebook_of(text: str) -> nbformat.NotebookNode:
    """The cells of a page."""
    text = re.sub(r"^<!--.*?-->\n", "", text, flags=re.DOTALL)  # words for the site's search
    cells, place = [], 0
    for block in BLOCK.finditer(text):
        cells.append(v4.new_markdown_cell(text[place : block.start()].strip()))
        place = block.end()
        if block[1] == "console":
            cells += [code(f"!{each[1]}", each[2]) for each in COMMAND.finditer(block[3])]
        else:
            shown = SHOWN.match(text, place)
            cells.append(code(block[3], shown[2] if shown else ""))
            place = shown.end() if shown else place
    cells.append(v4.new_markdown_cell(text[place:].strip()))
    cells = [cell for cell in cells if cell.source]
    cells.insert(1, code(INSTALL, ""))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def code(source: str, shown: str) -> nbformat.NotebookNode:
    """A cell, and what it prints."""
    outputs = [v4.new_output("stream", name="stdout", text=shown)] if shown else []
    return v4.new_code_cell(source.strip(), outputs=outputs)


if __name__ == "__main__":
    page, notebook = map(Path, sys.argv[1:])
    nbformat.write(notebook_of(page.read_text()), notebook)

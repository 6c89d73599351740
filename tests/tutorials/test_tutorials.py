"""Who follows a tutorial sees what it shows. `follow.py` says what is compared."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # a tutorial trains, is killed, starts ranks
HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
PAGES = [DOCS / "start.md", *sorted((DOCS / "tutorials").glob("*.md"))]
LONG = ("gan", "ranks", "sweeps")
NOTEBOOK = DOCS / "tutorials" / "first-run.ipynb"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=pytest.mark.soak if page.stem in LONG else ())
        for page in PAGES
    ],
)
def test_what_a_tutorial_shows_is_what_its_reader_sees(processes, page, tmp_path):
    processes.run(HERE / "follow.py", page, cwd=tmp_path)


SHOWN = """```python
print({0} / 4, "of", 3)
```

```text
{1} of 3
```

```console
$ echo {0} >file; kill -9 $$
Killed
$ cat file
{2}
```
"""


@pytest.mark.parametrize(
    ("printed", "shown", "by_command", "is_right"),
    [
        (3, "0.75", "3", True),
        (3, "0.76", "...", True),  # decimal numbers may differ a little
        (3, "0.95", "3", False),
        (3, "0.75", "4", False),
        (3, "", "3", False),
    ],
)
def test_a_page_that_shows_something_else_is_found_out(
    processes, tmp_path, printed, shown, by_command, is_right
):
    page = tmp_path / "page.md"
    page.write_text(SHOWN.format(printed, shown, by_command))
    result = processes.run(HERE / "follow.py", page, cwd=tmp_path, code=None)
    assert (result.returncode == 0) is is_right, result.stderr
    assert is_right or "+0.75 of 3" in result.stderr or "+3" in result.stderr


def test_the_notebook_is_the_first_tutorial(processes, tmp_path):
    written = tmp_path / "first-run.ipynb"
    processes.run(HERE / "notebook.py", NOTEBOOK.with_suffix(".md"), written)
    assert written.read_text() == NOTEBOOK.read_text()


@pytest.mark.soak
def test_the_cells_of_the_notebook_print_what_it_shows(tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    follow = runpy.run_path(str(HERE / "follow.py"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", follow["path"]())
    shown = nbformat.read(NOTEBOOK, as_version=4)
    found = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(found, timeout=120, kernel_name="python3").execute()
    assert len(shown.cells) > 20
    for said, ran in zip(shown.cells, found.cells, strict=True):
        assert follow["agrees"](printed(said), printed(ran)), printed(ran)


def printed(cell):
    return "".join(output.text for output in cell.get("outputs", ()))

"""The page: one HTML file that holds its style, its code, its data and plotly.js.

`assets/page.html` is its layout, and `assets/pieces.html` what the layout repeats. This file is the
only one that imports jinja2 and plotly.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common import readable_size, show, show_json
from ...files import printable, replacing
from . import cards, charts, figures, summary, text
from .facts import NothingToReportError, Picture, RunFacts, runs_in

if TYPE_CHECKING:
    from jinja2 import Environment

SCRIPTS = ("curves.js", "runs.js", "downloads.js", "page.js")
Address = Callable[[Picture], str]
"""Where a page finds a picture."""


@dataclass(frozen=True, eq=False)
class RunReport:
    """One HTML page about runs: a notebook shows it, and `write` makes a file of it."""

    html: str = field(repr=False)
    notes: tuple[str, ...] = ()
    """What the page leaves out of the files, and why."""

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page as one file, all at once.

        Raises:
            NotADirectoryError: The folder of the file is not there.
        """
        output = Path(path)
        if not output.parent.is_dir():
            raise NotADirectoryError(
                f"{output.parent} is no directory; make it, or choose another -o"
            )
        with replacing(output) as file:
            file.write(self.html.encode())

    def _repr_html_(self) -> str:
        """The page in a frame, which can neither read nor change the notebook."""
        return (
            '<iframe sandbox="allow-scripts allow-downloads" style="width: 100%; height: 44rem; '
            f'border: 0" srcdoc="{html.escape(self.html)}"></iframe>'
        )


def report(*directories: str | os.PathLike[str]) -> RunReport:
    """The page that `camshaft report` writes, about a run or about several runs side by side.

    As the last line of a notebook's cell, it is shown in the notebook, which then holds the page:
    about 5 MB. It needs `pip install "camshaft[report]"`.

    Args:
        directories: What the runs wrote to.

    Raises:
        NothingToReportError: There is no directory, or one holds nothing of a run.
        ImportError: plotly is not installed.
    """
    paths = [Path(each) for each in directories]
    if not paths:
        raise NothingToReportError('report() needs the directory of a run: report("runs/demo")')
    facts: list[RunFacts] = []
    for path, run in zip(paths, runs_in(paths), strict=True):
        run.look()
        facts.append(run.facts())
        if not facts[-1].is_begun:
            empty = "; ".join(["holds no rows, journal or checkpoints", *facts[-1].notes])
            raise NothingToReportError(f"{path} {empty if path.is_dir() else 'is no directory'}")
    # A name in a file of rows may hold half of a character, which no encoding has.
    page = Page(facts).html().encode(errors="replace").decode()
    return RunReport(page, tuple(f"{run.name}: {note}" for run in facts for note in run.notes))


def write_report(paths: list[Path], output: Path, as_json: bool = False) -> int:
    """Write the page to a file; return the exit code."""
    folders = [each for each in paths if not each.is_file()]  # runs/* may have files beside runs
    made = report(*(folders or paths))
    made.write(output)
    size = output.stat().st_size
    if as_json:
        show_json({"file": str(output), "size": size, "notes": made.notes})
    else:
        show([f"{output}  {readable_size(size)}", *made.notes])
    return 0


def embedded_image(picture: Picture) -> str:
    """The address that holds the picture itself."""
    return f"data:image/png;base64,{base64.b64encode(picture.content).decode()}"


class Page:
    """The view of runs: a whole page, or an update that an open page asks for."""

    def __init__(
        self,
        runs: Sequence[RunFacts],
        address: Address = embedded_image,
        *,
        is_live: bool = False,
    ) -> None:
        shared = charts.charts_of(name for run in runs for name in run.curves)
        is_begun = any(run.is_begun for run in runs)
        compared = summary.key_metrics(shared)[: summary.MOST_COMPARED]
        media = cards.cards_of(runs)
        self._shown = {
            "runs": runs,
            "names": [run.name for run in runs],
            "several": len(runs) > 1,
            "looks": [figures.look_of(place, 0, len(runs)) for place in range(len(runs))],
            "charts": shared,
            "media": media,
            "address": address,
            "is_live": is_live,
            "is_waiting": is_live and not is_begun,
            "compared": {name: summary.best_of_runs(name, runs) for name in compared},
            "table": summary.table(runs, compared) if len(runs) > 1 else None,
        }
        self._data = {
            "figures": figures.figures_of(shared, runs) | cards.media_figures(media, runs),
            "table": self._shown["table"],
            "clocks": [run.clocks for run in runs],
            "status": {
                "text": summary.status(runs) if is_begun else "waiting",
                "is_over": summary.is_over(runs),
            },
        }

    def html(self) -> str:
        """The page. It loads nothing; a live one asks its own server for news."""
        scripts = {"library": library(), "code": "".join(map(asset, SCRIPTS))}
        hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts.values())
        template = _environment().get_template("page.html")
        return template.render(
            self._shown,
            **scripts,
            script_hashes=hashes,
            style=asset("page.css"),
            data=self._data,
        )

    def news(self) -> dict[str, Any]:
        """The sections as HTML by their names, and the figures, ready for JSON."""
        template = _environment().get_template("page.html")
        context = template.new_context(self._shown)
        sections = {name: "".join(block(context)) for name, block in template.blocks.items()}
        return {"sections": sections, **self._data}


def library() -> str:
    """plotly.js, from plotly's Python package."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ImportError(
            'the charts of a page need plotly: pip install "camshaft[report]"'
        ) from None
    return str(get_plotlyjs())


def asset(name: str) -> str:
    """The text of a file in `assets`."""
    return files(__package__ or "").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    """The templates, which escape all text: markup, and characters that are not visible.

    A browser drops some control and format characters, and others turn the order of a text around.
    Templates join no text to markup by `~`: jinja2 would escape the text before `visible` sees it.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    def visible(value: object) -> object:
        """A value as the page shows it; invisible characters are escaped."""
        return value if isinstance(value, Markup) else printable(str(value))

    def breakable(name: str) -> Markup:
        """A name that lines may be broken in after each of its words, such as `val/<wbr>loss`."""
        return Markup("<wbr>").join(map(printable, re.split(r"(?<=[/_.])(?=[^/_.])", name)))

    def lines(several: str) -> Markup:
        """A text of several lines, for an element whose style keeps line breaks."""
        return Markup("\n").join(map(printable, several.split("\n")))

    environment = Environment(
        autoescape=True,
        finalize=visible,
        loader=FunctionLoader(asset),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Templates may call what these files have.
    known = vars(charts) | vars(figures) | vars(summary) | vars(text)
    filters: dict[str, Any] = environment.filters
    filters |= {name: each for name, each in known.items() if isfunction(each)}
    filters |= {"percent": "{:.0%}".format, "breakable": breakable, "lines": lines}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    names: dict[str, Any] = environment.globals
    names |= {name: each for name, each in known.items() if name.isupper()}
    names["pieces"] = environment.get_template("pieces.html").module
    return environment


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

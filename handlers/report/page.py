"""The page: one HTML file that holds its style, its code, its data and plotly.js.

The only file that imports plotly, and of plotly only that script.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from ..common import readable_size, show
from ..files import replacing
from .charts import charts
from .facts import NothingToReportError, Run, RunFacts, runs_in
from .figures import figures
from .head import is_over, status
from .markup import joined
from .media import Address, embedded_image
from .sections import sections


def report(paths: list[Path], output: Path) -> int:
    """Write one HTML page about a run, or about several runs side by side.

    Raises:
        NothingToReportError: A path is no directory, or holds nothing of a run.
        ImportError: plotly is not installed.
    """
    facts: list[RunFacts] = []
    for path, run in zip(paths, runs_in(paths), strict=True):
        run.look()
        facts.append(run.facts())
        if not facts[-1].is_begun:
            empty = "; ".join(["holds no rows, journal or checkpoints", *facts[-1].notes])
            raise NothingToReportError(f"{path} {empty if path.is_dir() else 'is no directory'}")
    # A name in a file of rows may hold half of a character, which no encoding has.
    text = page([run.name for run in facts], content(facts)).encode(errors="replace")
    if not output.parent.is_dir():
        raise NotADirectoryError(f"{output.parent} is no directory; make it, or choose another -o")
    with replacing(output) as file:
        file.write(text)
    notes = (f"{run.name}: {note}" for run in facts for note in run.notes)
    show([f"{output}  {readable_size(output.stat().st_size)}", *notes])
    return 0


def news(
    runs: Sequence[Run], address: Address = embedded_image, *, is_live: bool = False
) -> dict[str, Any]:
    """What a page shows of the runs now; see `content`."""
    return content([run.facts() for run in runs], address, is_live=is_live)


def content(
    facts: Sequence[RunFacts], address: Address = embedded_image, *, is_live: bool = False
) -> dict[str, Any]:
    """What a page shows: its sections as HTML and its figures, ready for JSON.

    Args:
        facts: What is known of the runs.
        address: Where the page finds an image; by default the page holds it.
        is_live: True if the page is served while the runs may go on.
    """
    drawn = charts(name for run in facts for name in run.curves)
    is_begun = any(run.is_begun for run in facts)
    return {
        "sections": sections(facts, drawn, address, is_live=is_live),
        "figures": figures(drawn, facts),
        "clocks": [run.clocks for run in facts],
        "status": {"text": status(facts) if is_begun else "waiting", "is_over": is_over(facts)},
    }


def page(names: list[str], shown: dict[str, Any], *, is_live: bool = False) -> str:
    """A page of what `news` returned. It loads nothing; a live one asks its own server for news.

    The policy in its head lets the browser run two scripts only, by their hashes, so no name of a
    metric can ever become code.
    """
    scripts = {"library": library(), "code": asset("curves.js") + asset("page.js")}
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts.values())
    policy = [
        "default-src 'none'",
        f"script-src {allowed}",
        "style-src 'unsafe-inline'",  # plotly.js makes its own
        "img-src data: blob: 'self'" if is_live else "img-src data: blob:",
        *(["connect-src 'self'"] if is_live else []),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return Template(asset("page.html")).substitute(
        scripts,
        **shown["sections"],
        policy="; ".join(policy),
        title=joined([", ".join(names)]),
        heading=joined([names[0]]) if len(names) == 1 else f"{len(names)} runs",
        kind="Training run" if len(names) == 1 else "Comparison",
        several="several" if len(names) > 1 else "",
        style=asset("page.css"),
        live=str(is_live).lower(),
        data=embedded({key: shown[key] for key in ("figures", "clocks", "status")}),
    )


def embedded(data: Any) -> str:
    r"""JSON for the inside of a `<script>`, where no text can end it or begin a tag or comment.

    >>> print(embedded({"</script>": "a & b"}))
    {"\u003c/script\u003e":"a \u0026 b"}
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


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


def _digest(script: str) -> str:
    return b64encode(hashlib.sha256(script.encode()).digest()).decode()

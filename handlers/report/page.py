"""The page itself: one HTML file that holds its style, its code, its data and plotly.js.

The one file that knows plotly, and of it only that script.
"""

from __future__ import annotations

import hashlib
import html
import json
from base64 import b64encode
from importlib.resources import files
from string import Template
from typing import Any

CODE = ("text.js", "head.js", "curves.js", "timeline.js", "tables.js", "page.js")
"""One script, in this order."""


def page(facts: dict[str, Any], *, live: bool = False) -> str:
    """A page about runs, which asks nobody for anything; a live one asks its server for news.

    The policy in its head lets the browser run these two scripts alone, by their hashes, so
    nothing that a run calls its metrics could ever run.

    Args:
        facts: What `Runs.facts` gives.
        live: True if it is served by `camshaft watch`.

    Raises:
        ImportError: plotly is not installed.
    """
    scripts = {"library": library(), "code": "\n".join(map(asset, CODE))}
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts.values())
    policy = [
        "default-src 'none'",
        f"script-src {allowed}",
        "style-src 'unsafe-inline'",  # plotly.js makes its own
        "img-src data: blob:",
        *(["connect-src 'self'"] if live else []),
    ]
    return Template(asset("page.html")).substitute(
        scripts,
        policy="; ".join(policy),
        title=html.escape(", ".join(run["name"] for run in facts["runs"])),
        style=asset("page.css"),
        live=str(live).lower(),
        data=embedded(facts),
    )


def embedded(facts: Any) -> str:
    r"""JSON for the inside of a `<script>`, where no text can end it or begin a tag or comment.

    >>> print(embedded({"</script>": "a & b"}))
    {"\u003c/script\u003e":"a \u0026 b"}
    """
    text = json.dumps(facts, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def library() -> str:
    """plotly.js, as its Python package brings it along.

    Raises:
        ImportError: plotly is not installed.
    """
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

"""What the search of the site finds: names by their words, and pages by what newcomers call them.

The search wants each word that is typed at the beginning of a word of a page. It counts titles
most, and skips tags. So the words that are added stand in a hidden element of a title or a text.
"""

import json
import re
from pathlib import Path

LINE = re.compile(r"^<!-- search: (.*?) -->\n", re.MULTILINE | re.DOTALL)
"""A line of a page with what people call its subject.

The search looks for a run of near words, and the first one that it finds counts. So a word stands
there once, or far from where it stands again.
"""
PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
QUESTION = "how do i can to what is why when where which my a an the in of on with for from use"
"""Words of questions, which no page should be missed for."""
SOURCE = re.compile(r"Source code in <code>.*?</code>\s*<pre>.*?</pre>", re.DOTALL)


def words(text: str) -> str:
    """The words of the names in a text that have capitals inside, such as EarlyStopping."""
    names = dict.fromkeys(re.findall(r"[A-Za-z0-9]+", re.sub(r"<[^>]*>", " ", text)))
    parts = (PARTS.split(name) for name in names)
    return " ".join(" ".join(each) for each in parts if len(each) > 1)


def hidden(text: str) -> str:
    """An element that is searched and not shown."""
    return f'<span hidden="hidden"> {text}</span>' if text else ""


def found_by(item: dict[str, object], called: dict[str, str]) -> None:
    """Add to a section of the index the words by which it should be found."""
    title, text = str(item["title"]), SOURCE.sub("", str(item["text"]))
    of_page = called.get(str(item["location"]), "") if item["level"] == 1 else ""
    item["title"] = title + hidden(f"{of_page} {words(title)}".strip())
    item["text"] = text + hidden(f"{words(text)} {QUESTION if item['level'] == 1 else ''}".strip())


def add_words(site: Path, called: dict[str, str]) -> None:
    """Rewrite a site's index; `called` has the words of pages by their location."""
    index = json.loads((site / "search.json").read_text())
    for item in index["items"]:
        found_by(item, called)
    written = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    (site / "search.json").write_text(written)
    (site / "search.js").write_text(f"var __index = {written}")

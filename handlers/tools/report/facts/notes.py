"""What people have written about a run, in a file of its directory."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ....files import budget, regular

NOTES = "notes.md"
"""The name of the file."""
TAG = re.compile(r"(?<![\w#/&])#([^\W\d_][\w-]{0,49})")
"""A word after a hash, such as `#baseline`; a heading has a space there."""
MOST_TAGS = 20


@dataclass(frozen=True)
class Notes:
    r"""The notes on a run.

    >>> Notes("# Notes\n#baseline, with #warm-up; see issue #3").tags
    ['baseline', 'warm-up']
    """

    text: str = ""

    @property
    def tags(self) -> list[str]:
        """The tags in the text, each once."""
        return [*dict.fromkeys(TAG.findall(self.text))][:MOST_TAGS]


def notes_in(directory: Path) -> Notes:
    """The notes in a run's directory; empty if there are none."""
    with suppress(OSError), regular(directory / NOTES) as file:
        text = file.read(budget.LARGEST_NOTES).decode(errors="replace")
        return Notes(text.replace("\r\n", "\n").strip())
    return Notes()

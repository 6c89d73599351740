"""Text from files: as a terminal may show it, and as the name of a file."""

from __future__ import annotations

import logging
from urllib.parse import quote


def printable(text: str) -> str:
    r"""The text with what is no visible character escaped: control and format characters, halves.

    A terminal obeys control characters, and format characters change the order of what is read.

    >>> print(printable("loss\x1b[2J \u202efile\n"))
    loss\x1b[2J \u202efile\n
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """The same of each line of a text."""
    return "\n".join(map(printable, text.split("\n")))


def safe_name(text: str) -> str:
    """A text as the name of one file: with no separator in it, and neither `.` nor `..`.

    >>> safe_name("../loss %"), safe_name("."), safe_name("val loss")
    ('%2E%2E%2Floss %25', '%2E', 'val loss')
    """
    return "%2E" if text == "." else quote(text, safe=" ").replace("..", "%2E%2E")


class PrintableMessages(logging.Filter):
    """Escapes the messages of a logger: they name files, objects and metrics from elsewhere."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Escape a message, and let it pass."""
        said = record.getMessage()
        if not said.replace("\n", "").isprintable():
            record.msg, record.args = printable_lines(said), None
        return True


logging.getLogger("camshaft").addFilter(PrintableMessages())  # all messages of Camshaft go there

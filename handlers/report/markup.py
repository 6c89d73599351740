"""HTML whose text is always escaped; numbers, times and durations as people read them.

Control and format characters are escaped too, as in a terminal: a browser drops some of them, and
others turn the order of a text around.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from datetime import datetime
from html import escape

from ..files import printable, printable_lines

LATEST_TIME = 250_000_000_000
"""The year 9892 in seconds since 1970; Python's dates end soon after it."""


ABSENT = "\N{EN DASH}"
"""Stands where a page has nothing to say."""


class Html(str):
    """Text that is HTML already. Any other text is escaped when it becomes part of a page."""


def tag(name: str, *content: str, **attributes: str | float) -> Html:
    """An element; an underscore in the name of an attribute becomes a hyphen.

    >>> tag("p", "1 < 2 ", tag("b", "yes"), class_="note", aria_label='"')
    '<p class="note" aria-label="&quot;">1 &lt; 2 <b>yes</b></p>'
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_text(str(value))}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{told}>{joined(content)}</{name}>")


def joined(content: Iterable[str]) -> Html:
    """Pieces of a page one after the other."""
    return Html("".join(each if isinstance(each, Html) else _text(each) for each in content))


def lines(text: str) -> Html:
    """A text of several lines, for an element whose style keeps them apart."""
    return Html(escape(printable_lines(text)))


def key(name: str) -> str:
    r"""A name in ASCII, which is the same in an attribute and in a script, for each name another.

    >>> print(key("loss"), key("\u202eloss"))
    loss \u202eloss
    """
    return name.encode("unicode_escape").decode()


def breakable(name: str) -> Html:
    """A name that lines may be broken in after each of its words.

    >>> breakable("val/loss")
    'val/<wbr>loss'
    """
    return Html("<wbr>".join(map(_text, re.split(r"(?<=[/_.])(?=[^/_.])", name))))


def _text(text: str) -> str:
    return escape(printable(text))


def swatch(colour: str, dash: str) -> Html:
    """A piece of a curve."""
    return tag("i", class_=f"swatch {dash}", style=f"color: var(--{colour})", aria_hidden="true")


def table(
    label: str,
    columns: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str] | str],
    *,
    differing: Container[int] = (),
    metrics: Sequence[str] = (),
) -> Html:
    """A table that can be scrolled.

    Args:
        label: What it is about.
        columns: A letter for each column: `l` for text, `r` for numbers, `m` for code.
        head: The names of the columns.
        rows: Cells; a row that is one text is a heading of the rows below it.
        differing: The places of the rows to mark.
        metrics: What a search finds each row by.
    """
    classes = {"l": {}, "r": {"class_": "number"}, "m": {"class_": "code"}}
    kinds = [classes[letter] for letter in columns]
    lines: list[Html] = []
    for place, row in enumerate(rows):
        told = {"data_metrics": metrics[place]} if metrics else {}
        if isinstance(row, str):
            cell = tag("th", row, scope="rowgroup", colspan=len(head))
            lines.append(tag("tr", cell, class_="group", **told))
            continue
        cells = [tag("td", text, **kind) for text, kind in zip(row, kinds, strict=True)]
        cells[0] = tag("th", row[0], scope="row", **kinds[0])
        told |= {"class_": "differs"} if place in differing else {}
        lines.append(tag("tr", *cells, **told))
    heads = (tag("th", text, scope="col", **kind) for text, kind in zip(head, kinds, strict=True))
    whole = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *lines))
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=label)


def number(value: float | str | None) -> str:
    """Four digits of a number; whole numbers and large ones in full.

    >>> number(144), number(12345.67), number(0.0768123), number(2.38e-7), number("nan")
    ('144', '12,346', '0.07681', '2.38e-07', 'nan')
    """
    if value is None or isinstance(value, str):
        return value or ABSENT
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e6):
        return f"{value:,.0f}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e6 else f"{value:.4g}"


def counted(count: float, noun: str) -> str:
    """A number of things.

    >>> counted(1, "step"), counted(2, "step")
    ('1 step', '2 steps')
    """
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float, *, whole: bool = False) -> str:
    """A length of time; only its largest unit if it is to be whole.

    >>> duration(3.14159), duration(75), duration(7260), duration(200_000, whole=True)
    ('3.1 s', '1 min 15 s', '2 h 1 min', '2 days')
    """
    seconds = max(0.0, seconds)
    if whole:
        sizes = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))
        unit, size = next((each for each in sizes if seconds >= each[1]), sizes[-1])
        return counted(seconds // size, unit)
    if 0 < seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.{1 if seconds < 10 else 0}f} s"
    minutes, hours = divmod(round(seconds), 60), divmod(round(seconds / 60), 60)
    return f"{minutes[0]} min {minutes[1]} s" if seconds < 3600 else f"{hours[0]} h {hours[1]} min"


def local_time(seconds: float) -> str:
    """A time in seconds since 1970 by the clock of this machine, as ISO 8601 has it."""
    seconds = min(max(seconds, 0), LATEST_TIME)
    return datetime.fromtimestamp(seconds).isoformat(timespec="milliseconds")


def clock(seconds: float | None) -> str:
    """The same to the second, for people."""
    return local_time(seconds)[:19].replace("T", " ") if seconds else ABSENT

"""Numbers, times and names as people read them."""

from __future__ import annotations

from datetime import datetime

from ...common import readable_size

LATEST_TIME = 250_000_000_000
"""The year 9892 in seconds since 1970; Python's dates end soon after it."""
ABSENT = "\N{EN DASH}"
"""Stands where a page has nothing to say."""


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


def size(count: int | None) -> str:
    """A number of bytes."""
    return ABSENT if count is None else readable_size(count)


def duration(seconds: float, *, whole: bool = False) -> str:
    """A length of time; only its largest unit if it is to be whole.

    >>> duration(3.14159), duration(75), duration(7260), duration(200_000, whole=True)
    ('3.1 s', '1 min 15 s', '2 h 1 min', '2 days')
    """
    seconds = max(0.0, seconds)
    if whole:
        sizes = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))
        unit, length = next((each for each in sizes if seconds >= each[1]), sizes[-1])
        return counted(seconds // length, unit)
    if 0 < seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.{1 if seconds < 10 else 0}f} s"
    minutes, hours = divmod(round(seconds), 60), divmod(round(seconds / 60), 60)
    return f"{minutes[0]} min {minutes[1]} s" if seconds < 3600 else f"{hours[0]} h {hours[1]} min"


def iso_time(seconds: float) -> str:
    """A time in seconds since 1970, as ISO 8601 writes it, in the time zone of this machine."""
    seconds = min(max(seconds, 0), LATEST_TIME)
    return datetime.fromtimestamp(seconds).isoformat(timespec="milliseconds")


def date_and_time(seconds: float | None) -> str:
    """The same to the second, for people."""
    return iso_time(seconds)[:19].replace("T", " ") if seconds else ABSENT


def ascii_key(name: str) -> str:
    r"""A name in ASCII, so that an attribute and a script hold the same text; unique to the name.

    >>> print(ascii_key("loss"), ascii_key("\u202eloss"))
    loss \u202eloss
    """
    return name.encode("unicode_escape").decode()

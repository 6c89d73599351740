"""Letters between the ranks of a process group: the only messages that background threads may use.

Only the thread that trains may take part in collectives. A letter needs none: one rank posts it
into the store and goes on at once; another rank reads it later.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

from .groups import default_store, rank

FIRST, LONGEST = 0.002, 0.25
"""Seconds between two looks into the store: at first, and at most."""


def post(box: str, text: str) -> None:
    """Post a letter, which is one line of text, into a box.

    Raises:
        OSError: The ranks are no longer connected.
        ValueError: The text has several lines, which would be taken for several letters.
    """
    if "\n" in text:
        raise ValueError("a letter is one line of text: post several lines as json.dumps(text)")
    with _connected(f"rank {rank()} could not tell the others what it did"):
        store = default_store()
        store.append(f"camshaft/{box}", f"{text}\n")
        store.add(f"camshaft/{box}/count", 1)


def collected(box: str, count: int, is_over: Callable[[], bool]) -> list[str]:
    """Wait for so many letters in a box, and empty it; one call of the store gives all letters.

    The wait ends without some of them when no new letter arrives within the timeout of the process
    group.

    Args:
        box: The name of the box; each name is used once.
        count: How many letters are to come.
        is_over: Called again and again; returns True to end the wait.

    Raises:
        OSError: The ranks are not connected any more.
    """
    letters = read_letters(box, count, is_over)
    remove_letters(box)
    return letters


def read_letters(box: str, count: int, is_over: Callable[[], bool]) -> list[str]:
    """The letters in a box, which stay there; see `collected`."""
    with _connected("the ranks could not tell one another what they did"):
        store = default_store()
        wait_for(store, f"camshaft/{box}/count", count, is_over)
        store.append(f"camshaft/{box}", "")  # to read what is not there would wait for it
        letters: list[str] = store.get(f"camshaft/{box}").decode().split("\n")
    return letters[:-1]


def remove_letters(box: str) -> None:
    """Remove a box from the store; there need not be one."""
    with _connected("the ranks could not tell one another what they did"):
        store = default_store()
        for key in (f"camshaft/{box}", f"camshaft/{box}/count"):
            store.delete_key(key)


@contextmanager
def _connected(otherwise: str) -> Generator[None, None, None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise OSError(f"{otherwise}: {error}") from error


def wait_for(store: Any, key: str, count: int, is_over: Callable[[], bool]) -> int:
    """Wait until a counter of the store has reached this count; return its latest value.

    The wait also ends when the counter does not change within the timeout of the process group, or
    `is_over` returns True.
    """
    first = min(LONGEST, FIRST * max(1, count / 100))  # the letters of thousands come in turn
    pause, arrived, since = first, 0, monotonic()
    while (now := int(store.add(key, 0))) < count and not is_over():
        if now > arrived:
            pause, arrived, since = first, now, monotonic()
        if monotonic() - since > store.timeout.total_seconds():
            break
        sleep(pause)
        pause = min(2 * pause, LONGEST)
    return now

"""Letters between the ranks of a process group: the only messages that background threads may use.

Only the thread that trains may take part in collectives. A letter needs none: one rank leaves it
in the store and goes on at once; another rank reads it later.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

from .groups import default_store

FIRST, LONGEST = 0.002, 0.25
"""Seconds between two looks into the store: at first, and at most."""


def leave(box: str, rank: int, text: str) -> None:
    """Leave a letter in a box.

    Raises:
        OSError: The ranks are no longer connected.
    """
    try:
        store = default_store()
        store.set(f"camshaft/{box}/{rank}", text)
        store.add(f"camshaft/{box}", 1)
    except (RuntimeError, ValueError) as error:
        raise OSError(f"rank {rank} could not tell rank 0 what it wrote: {error}") from error


def collected(box: str, count: int, is_over: Callable[[], bool]) -> list[str | None]:
    """Wait for a letter of each rank, and empty the box; None stands for each missing letter.

    The wait ends when no new letter arrives within the timeout of the process group.

    Args:
        box: The name of the box; each name is used once.
        count: How many ranks leave a letter.
        is_over: Called again and again; returns True to end the wait.

    Raises:
        OSError: The ranks are not connected any more.
    """
    try:
        store = default_store()
        wait_for(store, f"camshaft/{box}", count, is_over)
        letters: list[str | None] = []
        for key in (f"camshaft/{box}/{rank}" for rank in range(count)):
            letters.append(store.get(key).decode() if store.check([key]) else None)
            store.delete_key(key)
        store.delete_key(f"camshaft/{box}")
    except (RuntimeError, ValueError) as error:
        raise OSError(f"the ranks could not tell one another what they wrote: {error}") from error
    return letters


def wait_for(store: Any, key: str, count: int, is_over: Callable[[], bool]) -> int:
    """Wait until a counter of the store has reached this count; return its latest value.

    The wait also ends when the counter does not change within the timeout of the process group, or
    `is_over` returns True.
    """
    pause, arrived, since = FIRST, 0, monotonic()
    while (now := int(store.add(key, 0))) < count and not is_over():
        if now > arrived:
            pause, arrived, since = FIRST, now, monotonic()
        if monotonic() - since > store.timeout.total_seconds():
            break
        sleep(pause)
        pause = min(2 * pause, LONGEST)
    return now

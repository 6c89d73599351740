"""Rows that a thread writes: for trackers, which may be slow or away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Literal

from .rows import MOST, Row
from .writer import Start, Writer

logger = logging.getLogger("camshaft")

PATIENCE = 5.0
"""The seconds that a run waits for a logger at its end."""


class Background:
    """Hands rows to a thread, which calls the writer; the run waits for it at its end alone.

    What the writer raises is told once. What it has not taken yet is in each checkpoint, so that a
    resumed run can give it again.
    """

    def __init__(self, name: str, open: Callable[[Start], Writer]) -> None:
        """Start nothing yet; the thread and warnings are called like the logger."""
        self.name = name
        self.written = 0
        self._given = 0
        self._open = open
        self._queue: SimpleQueue[Row | Literal["sync", "end"]] = SimpleQueue()
        self._thread: Thread | None = None
        self._deadline = 0.0
        self._warned = False

    def begin(self, start: Start, rows: Sequence[Row]) -> None:
        """Let the thread open the writer, and give it the rows that it has to have again."""
        self.written = rows[0].number - 1 if rows else 0
        for row in rows:
            self.write(row)
        # A daemon: a thread that hangs must not keep the process from ending.
        self._thread = Thread(target=self._work, args=[start], name=self.name, daemon=True)
        self._thread.start()

    def again(self, start: Start, rows: Sequence[Row]) -> None:
        """Nothing: a tracker that could not be opened is left alone for the rest of the run."""

    def write(self, row: Row) -> None:
        """Hand over a row, unless the thread is too far behind."""
        if row.number - self.written <= MOST:
            self._queue.put(row)
            self._given = row.number
        else:
            self._warn(f"is {MOST} rows behind, and gets no more until it has written some")

    def sync(self) -> None:
        """Let the thread sync when it gets there; nobody waits for it."""
        self._queue.put("sync")

    def end(self) -> None:
        """Let the thread come to its end; from now on, its time is running."""
        self._queue.put("end")
        self._deadline = time.monotonic() + PATIENCE

    def close(self) -> None:
        """Wait until the thread is through, but not for long."""
        if self._thread is not None:
            self._thread.join(max(0.0, self._deadline - time.monotonic()))
            if self._thread.is_alive():
                missed = self._given - self.written
                self._warn(
                    f"was still at work {PATIENCE:g} seconds after the end of the run; "
                    f"{missed} of its rows may be lost"
                )

    def _work(self, start: Start) -> None:
        try:
            writer = self._open(start)
        except Exception as error:
            self._warn(f"could not be opened and gets no rows: {type(error).__name__}: {error}")
            return
        while (item := self._queue.get()) != "end":
            try:
                writer.sync() if item == "sync" else writer.write(item)
            except Exception as error:
                self._warn(f"lost a row: {type(error).__name__}: {error}; the run goes on")
            if item != "sync":
                self.written = item.number
        try:
            writer.close()
        except Exception as error:
            self._warn(f"could not end well: {type(error).__name__}: {error}")

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            with suppress(Exception):
                logger.warning("%s %s", self.name, what)

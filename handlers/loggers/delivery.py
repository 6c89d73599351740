"""How rows reach a writer: at once, for local files, or by a thread, for trackers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from threading import Thread
from typing import Literal

from ...engine.modules import untouched
from ..files import RemovedError
from .rows import MOST, Row, Start, Writer

logger: logging.Logger = logging.getLogger("camshaft")

ANY = (Exception, SystemExit)
"""What a tracker may raise in its thread; some call `sys.exit`."""
PATIENCE = 5.0
"""The seconds that a run waits for a logger at its end."""
LATER = (
    f"What it misses, its latest {MOST} rows, it gets at the next save, at the end of the run, or "
    "when the run is resumed, if it can write then"
)


@dataclass(eq=False)
class Delivery:
    """Gives the rows of a run to a writer; a writer that raises costs one warning, not the run."""

    name: str
    """The name of the logger."""
    writer: Callable[[Start], Writer]
    """Opens the writer."""
    place: Callable[[], tuple[Start, Sequence[Row]]]
    """Gives the place in the run at which to open the writer, and the rows to write again."""
    written: int = field(default=0, init=False)
    """The number of the last row that was written or finally lost."""
    _warned: bool = field(default=False, init=False)

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            with suppress(Exception):
                logger.warning("%s %s", self.name, what)


@dataclass(eq=False)
class Direct(Delivery):
    """Calls a writer at once, in the thread of the training.

    A file that takes no more rows, as on a full disk, is closed. At each save and at the end of
    the run it is opened again, with all rows that it has missed. A file that somebody has removed
    is made again at once, with the rows of the current iteration.
    """

    _writer: Writer | None = field(default=None, init=False)
    _missed: Start | None = field(default=None, init=False)
    """The place at which the writer could not be opened."""
    _is_removed: bool = field(default=False, init=False)
    """True if somebody has removed the file."""

    def open(self) -> None:
        """Open the writer, and send it again the rows that it may lack.

        Raises:
            TypeError: The logger's arguments make no sense.
            ValueError: The same, or the writer would spoil a file.
        """
        start, rows = self.place()
        start = self._missed or start
        if self._is_removed:  # the log says so already
            start = replace(start, last=0)
        self.written = rows[0].number - 1 if rows else 0
        self._is_removed = False
        try:
            with untouched({}, None):  # a client may draw random numbers, such as for a name
                self._writer, self._missed = self.writer(start), None
        except (TypeError, ValueError):
            raise
        except Exception as error:
            self._missed = start
            self._fail(error)
        for row in rows:
            self._write(row)

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows now."""
        for row in rows:
            self._write(row)
        if self._is_removed:
            self._open_again()

    def sync(self) -> None:
        """Make all rows survive a crash, those too that could not be written before."""
        if self._writer is None:
            self._open_again()
        try:
            if self._writer is not None:
                self._writer.sync()
        except Exception as error:
            self._fail(error)
        if self._is_removed:
            self._open_again()

    end = sync

    def close(self) -> None:
        """Close the writer."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            try:
                writer.close()
            except Exception as error:
                self._warn_of(error, "It may lack its last rows")

    def _open_again(self) -> None:
        try:
            self.open()
        except (TypeError, ValueError) as error:
            self._fail(error)

    def _write(self, row: Row) -> None:
        if self._writer is None:
            return
        try:
            self._writer.write(row)
        except OSError as error:
            self._fail(error)
            return
        except Exception as error:  # the fault of this row: the writer may take others
            self._warn_of(error, "That row is lost")
        self.written: int = row.number

    def _fail(self, error: Exception) -> None:
        self._is_removed = isinstance(error, RemovedError)
        if self._is_removed:
            logger.warning("%s: %s", self.name, error)
        else:
            self._warn_of(error, LATER)
        writer, self._writer = self._writer, None
        with suppress(Exception):
            if writer is not None:
                writer.close()

    def _warn_of(self, error: Exception, meaning: str) -> None:
        said = f"{type(error).__name__}: {error}"
        self._warn(f"could not write: {said}; the run goes on. {meaning}")


@dataclass(eq=False)
class Background(Delivery):
    """Hands rows to a thread that calls the writer; the run waits for it only at its end.

    Rows that the writer has not taken yet are in each checkpoint, so that a resumed run can give
    them again.
    """

    _given: int = field(default=0, init=False)
    _queue: SimpleQueue[Row | Literal["sync", "end"]] = field(
        default_factory=SimpleQueue[Row | Literal["sync", "end"]], init=False
    )
    _thread: Thread | None = field(default=None, init=False)
    _deadline: float = field(default=0.0, init=False)

    def open(self) -> None:
        """Let the thread open the writer, and give it again the rows that it may lack.

        A tracker that could not be opened gets no rows for the rest of the run.
        """
        start, rows = self.place()
        self.written = rows[0].number - 1 if rows else 0
        self.write(rows)
        # A daemon: a thread that hangs must not keep the process from ending.
        self._thread = Thread(target=self._work, args=[start], name=self.name, daemon=True)
        self._thread.start()

    def write(self, rows: Sequence[Row]) -> None:
        """Hand rows over, unless the thread is too far behind."""
        for row in rows:
            if row.number - self.written <= MOST:
                self._queue.put(row)
                self._given = row.number
            else:
                self._warn(f"is {MOST} rows behind, and gets no more until it has written some")

    def sync(self) -> None:
        """Let the thread sync when it has written the rows before; do not wait."""
        self._queue.put("sync")

    def end(self) -> None:
        """Let the thread end when it has written all rows; its patience starts to run out."""
        self._queue.put("end")
        self._deadline = time.monotonic() + PATIENCE

    def close(self) -> None:
        """Wait for the thread, at most until its patience has run out."""
        if self._thread is not None:
            self._thread.join(max(0.0, self._deadline - time.monotonic()))
            if self._thread.is_alive():
                left = self._given - self.written
                self._warn(
                    f"was still at work {PATIENCE:g} seconds after the end of the run; "
                    + (f"{left} of its rows may be lost" if left else "it has taken all rows")
                )

    def _work(self, start: Start) -> None:
        try:
            writer = self.writer(start)
        except ANY as error:
            self._warn(f"could not be opened and gets no rows: {type(error).__name__}: {error}")
            return
        while (item := self._queue.get()) != "end":
            try:
                writer.sync() if item == "sync" else writer.write(item)
            except ANY as error:
                self._warn(f"lost a row: {type(error).__name__}: {error}; the run goes on")
            if item != "sync":
                self.written: int = item.number
        try:
            writer.close()
        except ANY as error:
            self._warn(f"could not end well: {type(error).__name__}: {error}")

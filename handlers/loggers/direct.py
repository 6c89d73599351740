"""Rows that are written as they are made: for local files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from .rows import Row
from .writer import Start, Writer

logger = logging.getLogger("camshaft")

LATER = (
    "what it misses it gets at the next save, at the end of the run, or when the run is resumed, "
    "if it can write then"
)


class Direct:
    """Calls a writer in place; what it raises is told once, and costs rows at the most.

    A file that takes no more rows, as on a full disk, is closed; at each save and at the end of
    the run it is opened once more, with all that it has missed.
    """

    def __init__(self, name: str, open: Callable[[Start], Writer]) -> None:
        """Write nothing yet; warnings call the logger by its name."""
        self.name = name
        self.written = 0
        self._open = open
        self._missed: Start | None = None
        self._writer: Writer | None = None
        self._warned = False

    def begin(self, start: Start, rows: Sequence[Row]) -> None:
        """Open the writer, and give it the rows that it has to have again.

        Raises:
            TypeError: What the logger was given makes no sense.
            ValueError: The same, or it would spoil what is there.
        """
        self.written = rows[0].number - 1 if rows else 0
        try:
            self._writer, self._missed = self._open(start), None
        except (TypeError, ValueError):
            raise
        except Exception as error:
            self._missed = start
            self._fail(error)
        for row in rows:
            self.write(row)

    def again(self, start: Start, rows: Sequence[Row]) -> None:
        """Open a writer that has failed once more."""
        if self._writer is None:
            try:
                self.begin(self._missed or start, rows)
            except (TypeError, ValueError) as error:
                self._fail(error)

    def write(self, row: Row) -> None:
        """Write a row now."""
        if self._writer is None:
            return
        try:
            self._writer.write(row)
        except OSError as error:
            self._fail(error)
            return
        except Exception as error:  # of this row, so others may do
            self._warn(error, "that row is lost")
        self.written = row.number

    def sync(self) -> None:
        """Have all rows on the disk."""
        if self._writer is not None:
            try:
                self._writer.sync()
            except Exception as error:
                self._fail(error)

    def end(self) -> None:
        """Have all rows on the disk, or say that they are not."""
        self.sync()

    def close(self) -> None:
        """Close the writer."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            try:
                writer.close()
            except Exception as error:
                self._warn(error, "it may lack its last rows")

    def _fail(self, error: Exception) -> None:
        self._warn(error)
        writer, self._writer = self._writer, None
        with suppress(Exception):
            if writer is not None:
                writer.close()

    def _warn(self, error: Exception, meaning: str = LATER) -> None:
        if not self._warned:
            self._warned = True
            kind = type(error).__name__
            text = "%s could not write: %s: %s; the run goes on. %s"
            logger.warning(text, self.name, kind, error, meaning.capitalize())

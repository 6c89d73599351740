"""A log file for each rank."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, TextIO

from ...engine import Engine, Events, Stage, State, ranks
from ..files import RemovedError, appending, refuse_removed

logger: logging.Logger = logging.getLogger("camshaft")

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True, eq=False)
class RankLogs:
    """Write what is logged during a run to `rank-0.log`, `rank-1.log`, ..., one for each rank.

    The files hold all records that Python's `logging` passes on, from Camshaft and from the script;
    `logging.basicConfig(level="INFO")` sets the level. The traceback of a failed rank is in its own
    file. A resumed run appends. A file that somebody removes during the run is made again.

    Args:
        directory: The directory of the files; made if it does not exist.
        format: The format of a line, as `logging.Formatter` takes it.
    """

    writes_files: ClassVar[bool] = True
    only_on_rank: ClassVar[None] = None
    """Each rank has its own, or none."""
    directory: str | os.PathLike[str]
    _: KW_ONLY
    format: str = FORMAT

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Open the file first of all, and close it last."""
        engine.on(Events.LOADING, stage=Stage.MEASURE)(self.open)
        engine.on(Events.FAILED, stage=Stage.REPORT)(self.fail)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.close)

    def open(self, state: State[Any, Any]) -> None:
        """Open this rank's file."""
        directory = Path(self.directory)
        file = RankLog(directory / f"rank-{ranks.rank()}.log")
        file.setFormatter(logging.Formatter(self.format))
        logging.getLogger().addHandler(file)
        state.recall(self, Log, saved=False).file = file

    def fail(self, state: State[Any, Any]) -> None:
        """Write the traceback to this file only; Python prints it anyway."""
        log = state.recall(self, Log, saved=False)
        error = state.error
        if log.file is not None and error is not None:
            about = (type(error), error, error.__traceback__)
            record = logging.LogRecord(
                "camshaft", logging.ERROR, __file__, 0, "the run failed", None, about
            )
            log.file.handle(record)

    def close(self, state: State[Any, Any]) -> None:
        """Close the file."""
        log = state.recall(self, Log, saved=False)
        if log.file is not None:
            logging.getLogger().removeHandler(log.file)
            log.file.close()
            log.file = None


class RankLog(logging.StreamHandler[TextIO]):
    """The file of one rank."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(self._open())

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, to a new file if somebody has removed the old one."""
        try:
            refuse_removed(self.stream.fileno(), self._path)
        except RemovedError as error:
            with suppress(OSError):  # keep the old file; the next record tries again
                old = self.stream
                self.stream: TextIO = self._open()
                old.close()
                logger.warning("RankLogs: %s", error)
        super().emit(record)

    def close(self) -> None:
        """Close the file."""
        self.stream.close()
        super().close()

    def _open(self) -> TextIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return open(appending(self._path), "a", encoding="utf-8")


@dataclass(slots=True)
class Log:
    """The file of a run under way."""

    file: RankLog | None = None

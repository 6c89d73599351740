"""The handler that sets what `camshaft set` asks for, on all ranks alike."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

from ....engine import Engine, Events, Firing, Stage, State, ranks
from ....engine.state import OF_ITERATION
from ...journal import Journal
from ...schedules import LRSchedule
from .ledger import Row, asked, ledger_of, read_ledger, read_request, write_ledger
from .settings import LIMITS, refuse_wrong, settings_in

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class Steering:
    """Let `camshaft set` change a run while it runs, and repeat each change after a kill.

    Rank 0 looks every few seconds whether something is asked for. What it finds it writes into the
    ledger, `steering/ledger.jsonl`, with the iteration after which it counts; when that is on the
    disk, it tells the other ranks. All set it at the first commit point from this iteration on. A
    run that has the ledger and is not there yet, be it resumed or new, sets it at the same place.

    Args:
        directory: Where the run writes, as for `Checkpoint`.
        interval: Seconds from one look to the next.

    Raises:
        ValueError: The interval is not positive.

    >>> Steering("runs/digits", interval=5)
    Steering(directory='runs/digits', interval=5)
    """

    writes_files: ClassVar[bool] = True
    directory: str | os.PathLike[str]
    _: KW_ONLY
    interval: float = 2.0

    def __post_init__(self) -> None:
        if not self.interval > 0:
            raise ValueError(f"Steering(interval={self.interval!r}): needs seconds greater than 0")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Read the ledger when a state is loaded; look, and set, after each iteration.

        Raises:
            ValueError: The engine is steered already.
        """
        if any(each is not self for each in engine.find(Steering)):
            raise ValueError("this engine has a Steering already: a run has one ledger")
        engine.on(Events.LOADING, stage=Stage.REPORT)(self.begin)
        engine.on(Events.ITERATION_COMPLETED)(self.look)

    def begin(self, state: State[Any, Any]) -> None:
        """Find what the ledger says that is not done yet; set the limits that were set before.

        Raises:
            ValueError: The ledger cannot be read, or has a change of an iteration that is over.
        """
        done, todo = state.recall(self, Done), state.recall(self, ToDo, saved=False)
        todo.limits = {name: getattr(state, name) for name in LIMITS}
        for name, (of_script, value) in done.limits.items():
            if todo.limits[name] == of_script:  # else the script was changed meanwhile, and counts
                setattr(state, name, value)
        directory = todo.directory = Path(self.directory).absolute()  # the script may move
        with ranks.on_all_ranks("read the ledger of Steering"):
            own = read_ledger(directory)
        # Hosts that share no disk have a copy each: rank 0 may come back on another one.
        known = [row for rows in (done.rows, *ranks.gathered(own)) for row in rows]
        todo.ledger = [*{row["request"]: row for row in known}.values()]
        is_other = todo.ledger != own or not ledger_of(directory).exists()
        with ranks.on_all_ranks("write the ledger of Steering"):
            if ranks.local_rank() == 0 and is_other:
                write_ledger(directory, todo.ledger)
        todo.rows = [row for row in _right(todo.ledger) if row not in done.rows]
        self._refuse_passed(state, todo.rows)
        if places := [str(row["iteration"]) for row in todo.rows]:
            where = f"{directory}: Steering sets again what its ledger has for iterations"
            logger.warning("%s %s", where, ", ".join(places))

    def look(self, state: State[Any, Any]) -> None:
        """Take up what is asked for, every few seconds; have what is due set at a commit point."""
        todo, iteration = state.recall(self, ToDo, saved=False), state.iteration
        if todo.clock.is_over(self.interval, iteration, local=False):
            todo.clock.record(iteration, iteration)
            rows = ranks.from_first(self._asked(state, todo) if ranks.rank() == 0 else [])
            if rows and ranks.rank() > 0:
                todo.ledger += rows
                if ranks.local_rank() == 0:
                    _write(todo.directory, todo.ledger)
            todo.rows += _right(rows)
        if todo.rows and min(row["iteration"] for row in todo.rows) <= iteration:
            state.control.at_commit, state.control.has_requests = self.set, True

    def set(self, state: State[Any, Any], store: Callable[[], None]) -> None:
        """Set what is due, on all ranks: the step is whole, and a save that is due comes after.

        Raises:
            ValueError: This run has not what the ledger names: it is that of another script.
        """
        done, todo = state.recall(self, Done), state.recall(self, ToDo, saved=False)
        due = [row for row in todo.rows if row["iteration"] <= state.iteration]
        due.sort(key=itemgetter("iteration"))  # the ledger has them as they were asked for
        for row in due:
            known = settings_in(state, row["iteration"])
            # Not limits: one may be lower than what the run has reached meanwhile, and ends it.
            refuse_wrong({n: row["set"][n] for n in row["set"] if n not in LIMITS}, known)
            for name, value in row["set"].items():
                known[name].write(value if (kind := known[name].kind) is None else kind(value))
                if name in LIMITS:
                    done.limits[name] = [todo.limits[name], value]
            told = {"was": {name: known[name].now for name in row["set"]}, "by": row["by"]}
            for each in state.engine.find(Journal):
                each.note(state, "set", set=row["set"], **told)
        done.rows += due
        todo.rows = [row for row in todo.rows if row["iteration"] > state.iteration]
        for schedule in state.engine.find(LRSchedule):
            schedule.end_with_run(state)
        if state.control.in_epoch and (limit := state.limit_reached) is not None:
            state.stop(limit, resumable=True)

    def _refuse_passed(self, state: State[Any, Any], rows: Iterable[Row]) -> None:
        """Refuse a ledger with a change that comes too late for this run."""
        # A run that left its iteration, such as in a validation, calls `look` in it once more.
        first = state.iteration + (OF_ITERATION not in state.control.left_at)
        for row in rows:
            if row["iteration"] < first:
                raise ValueError(
                    f"{ledger_of(Path(self.directory))} has {row['set']} after iteration "
                    f"{row['iteration']}, and this run goes on after iteration {state.iteration} "
                    "without that: resume from an earlier checkpoint, or take out the line"
                )

    def _asked(self, state: State[Any, Any], todo: ToDo) -> list[Row]:
        """What has been asked for since the last look, when it is in the ledger on the disk."""
        paths, known = asked(todo.directory), {row["request"] for row in todo.ledger}
        rows = [_row_of(path, state) for path in paths if path.stem not in known]
        if rows and not _write(todo.directory, [*todo.ledger, *rows]):
            return []
        todo.ledger += rows
        for path in paths:
            with suppress(OSError):  # it may be of another user; the ledger says that it is known
                path.unlink()
        return rows


@dataclass
class Done:
    """What was set in this run; saved with it."""

    rows: list[Row] = field(default_factory=list)
    limits: dict[str, list[int | None]] = field(default_factory=dict)
    """By name: the limit that the script gave, and the one that was set."""


@dataclass
class ToDo:
    """What is to be set in this run; not saved."""

    clock: Firing = field(default_factory=lambda: Firing(time.monotonic()))
    ledger: list[Row] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    """The rows of the ledger that are to come."""
    limits: dict[str, int | None] = field(default_factory=dict)
    """The limits that the script gave."""
    directory: Path = field(default_factory=Path)


def _right(rows: Iterable[Row]) -> list[Row]:
    """The rows that are not refused."""
    return [row for row in rows if "refused" not in row]


def _row_of(path: Path, state: State[Any, Any]) -> Row:
    """The row of a request; one that says why, if it is refused."""
    unread = {"by": "", "time": 0.0, "set": {}, "iteration": state.iteration}
    row: Row = {"request": path.stem, **unread}
    try:
        row = read_request(path, state.iteration)
        if (at := row["iteration"]) < state.iteration:
            raise ValueError(f"iteration {at} is over: the run is at iteration {state.iteration}")
        refuse_wrong(row["set"], settings_in(state, row["iteration"]))
    except (OSError, ValueError) as error:
        logger.warning("Steering: %s", error)
        return {**row, "refused": str(error)}
    return row


def _write(directory: Path, rows: list[Row]) -> bool:
    """Write the ledger; if the disk does not take it, warn."""
    try:
        write_ledger(directory, rows)
    except OSError as error:
        logger.warning("Steering: cannot write its ledger: %s", error)
        return False
    return True

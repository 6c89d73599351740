"""Rows of metrics in memory, as dicts or as a data frame."""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, asdict, dataclass, field
from importlib import import_module
from typing import Any, ClassVar, overload

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger
from ...engine.state import Entry
from ..common import AT_EACH_ROW, need
from ..validate import ValidationEvents
from .rows import Bookmark

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class History:
    """Keep the rows of a run in memory, to look at them in a notebook or to plot them.

    The rows are those of `JSONLines`: the clocks, and the numbers that are new. They are saved with
    the run, so a resumed run has the rows of its beginning too. To bound the size of checkpoints,
    only the last `most` rows are kept.

    `history["val/loss"]` is the list of a metric's values. `history["epoch", "val/loss"]` is a list
    for each name, over the rows that have all of them: `plt.plot(*history["epoch", "val/loss"])`.

    Args:
        when: When to make a row, if there is anything new.
        most: The largest number of rows.

    Raises:
        ValueError: `most` is no number of rows.

    >>> def train_step(state, batch):
    ...     state.metrics["loss"] = 1 / batch
    >>> history = History(when=Events.ITERATION_COMPLETED)
    >>> state = Engine(train_step, history).run([1, 2], max_epochs=1)
    >>> history.rows[-1]
    {'iteration': 2, 'step': 0, 'epoch': 1, 'loss': 0.5}
    >>> history["iteration", "loss"]
    ([1, 2], [1.0, 0.5])
    """

    when: EventEnum | Trigger = AT_EACH_ROW
    _: KW_ONLY
    most: int = 10_000
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]], init=False, repr=False)
    """The rows of the run that began or was resumed last; on rank 0 alone."""
    only_on_rank: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not self.most > 0:
            raise ValueError(f"History(most={self.most!r}): needs a number of rows above 0")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Make rows by the trigger, and at the end of the run one of what is left."""
        engine.on(Events.STARTED, stage=Stage.REPORT)(self.open)
        engine.on(Trigger.of(self.when) | Events.COMPLETED, stage=Stage.REPORT)(self.write)
        engine.on(ValidationEvents.VALIDATED, stage=Stage.REPORT)(self.keep)
        # A run that is over is loaded, and has no STARTED.
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.show)

    def open(self, state: State[Any, Any]) -> None:
        """Show the rows of this run."""
        state.recall(self, Kept).bookmark.open(state)
        self.show(state)

    def show(self, state: State[Any, Any]) -> None:
        """Let `rows` be those of this run."""
        object.__setattr__(self, "rows", state.recall(self, Kept).rows)

    def write(self, state: State[Any, Any], entries: dict[str, Entry] | None = None) -> None:
        """Keep what is new."""
        kept = state.recall(self, Kept)
        for row in kept.bookmark.next_rows(state, kept.bookmark.number, (), entries):
            kept.rows.append(row.clocks | row.metrics | row.clocks)
        if len(kept.rows) > self.most:
            if kept.bookmark.number - len(kept.rows) < 1:
                logger.warning(
                    "History keeps the last %d rows and drops those before; History(most=...) "
                    "keeps more, and JSONLines(path) keeps all",
                    self.most,
                )
            del kept.rows[: -self.most]

    def keep(self, state: State[Any, Any]) -> None:
        """Keep what an earlier validation measured, if it is in no row and was just replaced."""
        self.write(state, state.recall(self, Kept).bookmark.lost(state))

    @overload
    def __getitem__(self, names: str) -> list[float]: ...
    @overload
    def __getitem__(self, names: tuple[str, ...] | list[str]) -> tuple[list[float], ...]: ...
    def __getitem__(self, names: str | tuple[str, ...] | list[str]) -> Any:
        """The values of a metric or clock; of several, a list each, of the rows that have all."""
        asked = names if isinstance(names, tuple | list) else (names,)
        rows = [row for row in self.rows if all(name in row for name in asked)]
        if not rows:
            known = ", ".join(map(repr, dict.fromkeys(name for row in self.rows for name in row)))
            raise KeyError(
                f"no row has {' and '.join(map(repr, asked))}; there is: "
                f"{known or 'no row yet; a run makes them, on rank 0'} (all rows: history.rows)"
            )
        lists = tuple([row[name] for row in rows] for name in asked)
        return lists[0] if asked is not names else lists

    def __contains__(self, name: object) -> bool:
        """True if a row has this metric."""
        return any(name in row for row in self.rows)

    def frame(self) -> Any:
        """The rows as a data frame of pandas; a metric that a row lacks is NaN there.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        need("pandas", "History.frame()", "pandas")
        pandas: Any = import_module("pandas")
        return pandas.DataFrame(self.rows)


@dataclass
class Kept:
    """The rows of a run."""

    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    bookmark: Bookmark = field(default_factory=Bookmark)

    def state_dict(self) -> dict[str, Any]:
        """A copy: a checkpoint may be written while more rows come."""
        return {"rows": list(self.rows), "bookmark": asdict(self.bookmark)}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on with the rows of a checkpoint."""
        self.rows[:] = saved["rows"]
        self.bookmark = Bookmark(**saved["bookmark"])

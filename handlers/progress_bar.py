"""Progress as a bar on a terminal, or as plain lines."""

from __future__ import annotations

import logging
import math
import sys
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TextIO

from ..engine import Engine, Events, Stage, State
from .common import last_iteration, scalars, warn_of_unknown
from .schedules import rates

logger: logging.Logger = logging.getLogger("camshaft")

KERNEL = "ipykernel.zmqshell"
"""The module that is loaded in a notebook's process."""


@dataclass(frozen=True, eq=False, init=False)
class ProgressBar:
    """Show the progress of a run: a bar for each epoch, with rate, time left and metrics.

    A notebook shows one bar for the whole run: tqdm's bar for notebooks if ipywidgets is installed,
    else its text. If the output is neither a notebook nor a terminal, plain lines are written, one
    at the end of each epoch and one after each interval. Metrics are copied from their device only
    when they are shown, and the end of an epoch shows only those that are new in it. Evaluations
    inside the run are not shown.

    Args:
        metrics: The names of the metrics to show; by default all that are numbers.
        interval: Seconds from one drawing to the next; by default 0.5 for a bar and 30 for lines.
        file: The file to draw to; by default the notebook's cell, or standard error.

    Raises:
        TypeError: One of the metrics is not a name.
        ValueError: The interval is not positive.

    >>> def train_step(state, batch):
    ...     state.metrics["loss"] = 1 / batch
    >>> engine = Engine(train_step, ProgressBar("loss", file=sys.stdout))
    >>> state = engine.run([1, 2, 4], max_epochs=2)  # doctest: +ELLIPSIS
    epoch 1/2: 100% 3/3 [00:00<00:00, ...it/s, loss=0.25]
    epoch 2/2: 100% 3/3 [00:00<00:00, ...it/s, loss=0.25]
    """

    metrics: tuple[str, ...]
    interval: float | None
    file: TextIO | None
    only_on_rank: ClassVar[int] = 0

    def __init__(
        self, *metrics: str, interval: float | None = None, file: TextIO | None = None
    ) -> None:
        for name in metrics:
            if not isinstance(name, str):
                raise TypeError(
                    f"ProgressBar got {name!r} for a metric; it needs names, such as 'loss', and "
                    "everything else by keyword: ProgressBar('loss', interval=5)"
                )
        if interval is not None and not interval > 0:
            raise ValueError(f"ProgressBar(interval={interval!r}): needs seconds greater than 0")
        vars(self).update(metrics=metrics, interval=interval, file=file)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Draw by the clock and at the end of each epoch."""
        engine.on(Events.STARTED | Events.EPOCH_STARTED, stage=Stage.REPORT)(self.open)
        engine.on(Events.ITERATION_COMPLETED, stage=Stage.REPORT)(self.look)
        engine.on(Events.EPOCH_COMPLETED | Events.COMPLETED, stage=Stage.REPORT)(self.finish)
        if self.metrics:
            engine.on(Events.EPOCH_COMPLETED, stage=Stage.REPORT)(self.suspect)
            engine.on(Events.COMPLETED, stage=Stage.REPORT)(self.report_missing)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.close)

    def open(self, state: State[Any, Any]) -> None:
        """Begin the display of an epoch, or of the rest of it in a resumed run."""
        if not state.in_epoch:
            return
        show = state.recall(self, Show, saved=False)
        show.write = state.metrics.writes
        file = self.file or sys.stderr
        in_notebook = self.file is None and KERNEL in sys.modules
        if show.display is not None or not (in_notebook or file):  # of the whole run; nowhere
            return
        if in_notebook or file.isatty():
            show.display = Bar(state, None if in_notebook else file)
            show.interval, show.due = self.interval or 0.5, 0.0
        else:
            show.display, show.interval = Lines(state, file), self.interval or 30.0
            show.due = min(show.due, time.monotonic() + show.interval)

    def look(self, state: State[Any, Any]) -> None:
        """Draw if the interval is over."""
        show = state.recall(self, Show, saved=False)
        if time.monotonic() >= show.due:
            self._draw(state, show, since=0)

    def finish(self, state: State[Any, Any]) -> None:
        """Draw the end of an epoch, with what is new in it."""
        show = state.recall(self, Show, saved=False)
        if show.display is not None:
            self._draw(state, show, since=show.write)
            if not show.display.is_of_run:
                self.close(state)

    def suspect(self, state: State[Any, Any], *, at_end: bool = False) -> None:
        """Warn of a name that looks like a slip of the pen; at the end, of all without a metric."""
        known, unknown = rates(state) | state.metrics, state.recall(self, Show, saved=False).unknown
        warn_of_unknown(self.metrics, known, "ProgressBar", unknown, at_end=at_end)

    def report_missing(self, state: State[Any, Any]) -> None:
        """Warn of names that no metric had in the whole run."""
        self.suspect(state, at_end=True)

    def close(self, state: State[Any, Any]) -> None:
        """End the display, without reading a metric: the device may have failed."""
        show = state.recall(self, Show, saved=False)
        if show.display is not None:
            show.display.close(state)
            show.display = None

    def _draw(self, state: State[Any, Any], show: Show, since: int) -> None:
        if show.display is not None:
            new = state.metrics.since(since)
            if self.metrics:
                new = rates(state) | new
            chosen = {name: new[name] for name in self.metrics or new if name in new}
            numbers = scalars(chosen).items()
            text = ", ".join(f"{name}={value:.4g}" for name, value in numbers)
            show.due = time.monotonic() + show.interval
            try:
                show.display.draw(state, text)
            except (OSError, ValueError) as error:  # a pipe that nobody reads, a full disk
                if not show.warned:
                    show.warned = True
                    kind = type(error).__name__
                    logger.warning("ProgressBar: %s: %s; the run goes on", kind, error)


class Display(Protocol):
    """The display of one epoch, or of the run."""

    is_of_run: bool

    def draw(self, state: State[Any, Any], text: str) -> None:
        """Show the progress of the run, and its metrics as text."""

    def close(self, state: State[Any, Any]) -> None:
        """End the display."""


@dataclass(slots=True)
class Show:
    """The display of a run under way."""

    display: Display | None = None
    interval: float = 0.0
    due: float = math.inf
    """When to draw again, by the monotonic clock."""
    write: int = 0
    """The latest write of a metric as the epoch began."""
    warned: bool = False
    """True after the warning that nothing could be drawn."""
    unknown: set[str] = field(default_factory=set[str])
    """The unknown metric names that were already warned about."""


class Bar:
    """A progress bar of tqdm: of an epoch on a terminal, or of the run in a notebook's cell."""

    def __init__(self, state: State[Any, Any], file: TextIO | None) -> None:
        self.is_of_run: bool = file is None and state.training
        if file is None:
            from tqdm.auto import tqdm  # a widget if ipywidgets is there
        else:
            from tqdm import tqdm

        self._bar: Any = tqdm(
            desc=_title(state),
            total=self._total(state),
            initial=self._count(state),
            file=file or sys.stdout,  # notebooks show standard error as an alarm
            leave=state.parent is None,
            dynamic_ncols=True,
            mininterval=0,
            miniters=0,
        )

    def draw(self, state: State[Any, Any], text: str) -> None:
        """Draw the bar; tqdm's own interval is switched off."""
        self._bar.total = self._total(state)
        self._bar.set_description(_title(state), refresh=False)
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(self._count(state) - self._bar.n)

    def close(self, state: State[Any, Any]) -> None:
        """Leave the bar on the terminal, and go to the next line."""
        self._bar.n = self._count(state)
        self._bar.set_description(_title(state), refresh=False)
        if self.is_of_run and state.error is None:
            self._bar.total = self._bar.n  # a run that stops before its limit did not fail
        self._bar.close()

    def _count(self, state: State[Any, Any]) -> int:
        return state.iteration if self.is_of_run else state.iteration_in_epoch

    def _total(self, state: State[Any, Any]) -> int | None:
        return last_iteration(state) if self.is_of_run else _total(state)


class Lines:
    """Lines in tqdm's format, for a file or a pipe."""

    is_of_run = False

    def __init__(self, state: State[Any, Any], file: TextIO) -> None:
        self._file = file
        self._initial = state.iteration_in_epoch
        self._began = time.monotonic()

    def draw(self, state: State[Any, Any], text: str) -> None:
        """Write a line."""
        from tqdm import tqdm

        format_meter: Any = tqdm.format_meter  # its stub does not allow total=None
        line = format_meter(
            state.iteration_in_epoch,
            _total(state),
            time.monotonic() - self._began,
            initial=self._initial,
            prefix=_title(state),
            postfix=text,
            ncols=0,
        )
        self._file.write(f"{line}\n")
        self._file.flush()

    def close(self, state: State[Any, Any]) -> None:
        """Nothing is left to do."""


def _title(state: State[Any, Any]) -> str:
    if not state.training:
        return "evaluation"
    limit = "" if state.max_epochs is None else f"/{state.max_epochs}"
    return f"epoch {state.epoch}{limit}"


def _total(state: State[Any, Any]) -> int | None:
    """The batches of the epoch, up to the end of the run; None if unknown."""
    if state.max_iterations is None:
        return state.epoch_length
    left = state.max_iterations - state.control.epoch_began
    return left if state.epoch_length is None else min(left, state.epoch_length)

"""Validation on another machine: its results decide in the run, at iterations fixed beforehand."""

from __future__ import annotations

import logging
import time
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal

from ....engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ....engine.state import Left, can_leave, whole_number
from ...checkpoint import Checkpoint, Saved
from ...checkpoint.save import SavingHandler
from ...common import WEIGHTS_OF
from ...preemption import StopAfter, StopOnSignal
from ...restore_best import RestoreBest
from ...validate import Validate, write_metrics
from ..local import LocalCheckpoint
from ..mirror import Mirror
from ..replicas import Replicas
from ..results import Results

logger: logging.Logger = logging.getLogger("camshaft")

SOONEST, LATEST, TELL = 0.02, 1.0, 60.0
"""The least and the most seconds between two looks for a result, and those between two lines that
say what the run waits for."""


@dataclass
class Awaited:
    """The iterations whose checkpoints have no result yet, the first one first."""

    pending: list[int] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    """By iteration, the names of results whose checkpoints have been written."""


@dataclass(frozen=True, eq=False)
class ValidateElsewhere:
    """Let another process evaluate checkpoints, and take each result in `lag` iterations later.

    By `when`, the `Checkpoint` of the engine saves, and a script evaluates that, on any machine
    that sees the directory: see `follow`. Exactly `lag` iterations later the result becomes metrics
    of the run, `"<name>/<metric>"`, with the iteration of the weights as `"<name>/of_iteration"`,
    and `ValidationEvents.VALIDATED` is fired. So handlers decide the same however fast the other
    script is, and after any kill. A claim such as `best(1, "val/loss")` counts the result for the
    checkpoint that was measured, which no claim drops before.

    At the end of the run the results that are still out become metrics too, but nothing is fired:
    a run whose limit is raised takes them in when they are due.

    While the run waits, a stop by `StopOnSignal` or `StopAfter` is as at any time: the run that is
    resumed goes on waiting.

    Args:
        name: The prefix of the metrics, and the name that the other script gives to `follow`.
        lag: Iterations from the save to the moment at which its result counts; if an accumulation
            window is open then, the first iteration after it.
        when: When to save a checkpoint to be evaluated.
        late: `"wait"` for a result that is not there when it is due; or `"skip"` it with a warning,
            and write the decision beside the checkpoints, so that a resumed run repeats it.
        patience: The most seconds to wait for one result; `math.inf` for no limit.

    Raises:
        TypeError: `lag` is no whole number.
        ValueError: An argument makes no sense.

    >>> ValidateElsewhere(lag=0)
    Traceback (most recent call last):
    ...
    ValueError: lag=0: needs a number from 1
    """

    writes_files: ClassVar[bool] = True
    name: str = "val"
    _: KW_ONLY
    lag: int
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED
    late: Literal["wait", "skip"] = "wait"
    patience: float = 3600.0

    def __post_init__(self) -> None:
        Results("", self.name)
        object.__setattr__(self, "lag", whole_number("lag", self.lag, 1))
        if self.late not in ("wait", "skip"):
            raise ValueError(f"ValidateElsewhere(late={self.late!r}): needs 'wait' or 'skip'")
        if not self.patience > 0:
            raise ValueError(f"ValidateElsewhere(patience={self.patience!r}): needs some seconds")
        if Trigger.of(self.when).last:
            raise ValueError(
                "ValidateElsewhere(when=...(last=True)): a result can be awaited for a checkpoint "
                "that is saved before the end of the run; leave last=True out"
            )

    @property
    def awaits(self) -> str:
        """The prefix of metrics that come later than the first save."""
        return f"{self.name}/"

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Ask for saves by the trigger, and take results in before other handlers act on them."""
        engine.on(Events.LOADING, stage=Stage.MEASURE)(self.check)
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.begin)
        engine.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.take_due)
        engine.on(self.when, stage=Stage.REPORT)(self.ask)
        engine.on(Events.SAVING, stage=Stage.MEASURE)(self.name_results)
        engine.on(Events.COMPLETED, stage=Stage.MEASURE)(self.end)

    def check(self, state: State[Any, Any]) -> None:
        """Refuse handlers with which it does not work.

        Raises:
            ValueError: There is such a handler, or not one `Checkpoint`.
        """
        self._checkpoint(state)
        for each in state.engine.handlers.values():
            metrics = [each.metric] if isinstance(each, RestoreBest) else []
            if isinstance(each, SavingHandler) and not isinstance(each, Checkpoint):
                metrics = [claim.metric for claim in each.keep.bests]
            if late := [name for name in metrics if name.startswith(self.awaits)]:
                raise ValueError(
                    f"{type(each).__name__} keeps the weights of the moment by {late[0]!r}, and "
                    f"those that {self!r} measures are {self.lag} iterations older: keep the "
                    f"checkpoint by Checkpoint(..., keep=latest() | best(1, {late[0]!r})), and "
                    "load or export it when the run is over"
                )
            if isinstance(each, Replicas):
                raise ValueError(f"{self!r}: replicas of a run cannot await one result together")
            validates = isinstance(each, Validate | ValidateElsewhere) and each is not self
            if validates and getattr(each, "name", None) == self.name:
                raise ValueError(
                    f"two validations have the name {self.name!r}, and would write the same "
                    "metrics; give one of them another name"
                )

    def begin(self, state: State[Any, Any]) -> None:
        """Hold the checkpoints whose results are out; put results of an earlier run aside."""
        with ranks.on_all_ranks("begin to await evaluations"):
            if ranks.rank() == 0:
                self._results(state).begin(is_new=state.is_new)
        self._hold(state, self._pending(state))

    def ask(self, state: State[Any, Any]) -> None:
        """Ask for a save whose result counts later."""
        if state.iteration not in self._pending(state):
            self._hold(state, [*self._pending(state), state.iteration])
        state.save(self._results(state).reason, by=self._checkpoint(state))

    def name_results(self, state: State[Any, Any]) -> None:
        """Note what results are called: a machine that goes on may not have their checkpoints."""
        memory = state.recall(self, Awaited)
        if len(memory.results) == len(memory.pending):
            return
        found = dict[str, str]()
        with ranks.on_all_ranks("name the results of evaluations"):
            self._checkpoint(state).wait(state)  # as the save that follows does
            if ranks.rank() == 0:
                for iteration in memory.pending:
                    for saved in self._saved(state, iteration):
                        found[f"{iteration}"] = self._results(state).place(saved).name
        memory.results = ranks.from_first(memory.results | found)

    def take_due(self, state: State[Any, Any]) -> None:
        """Take the results in that are due.

        Raises:
            FileNotFoundError: The run waits for a result, and its checkpoint is gone.
            TimeoutError: There is no result within `patience`.
        """
        while (
            (pending := self._pending(state))
            and pending[0] + self.lag <= state.iteration
            and not state.step_under_way.windows
        ):
            metrics = self._result(state, pending[0])
            if metrics is not None:
                write_metrics(state, self.name, metrics)
                self._note(state, pending[0], metrics)
            self._hold(state, pending[1:])

    def end(self, state: State[Any, Any]) -> None:
        """Take the results in that are still out, so that the best checkpoint is known."""
        for iteration in self._pending(state):
            metrics = self._result(state, iteration, is_end=True)
            if metrics is not None:
                state.metrics.update({f"{self.name}/{each}": n for each, n in metrics.items()})
                self._note(state, iteration, metrics)
        if self._pending(state):
            state.save(f"{self.name} completed", by=self._checkpoint(state))
        with ranks.on_all_ranks("note that the run has completed"):
            if ranks.rank() == 0:
                results = self._results(state)
                results.complete(state.iteration)
                if not self._pending(state) and results.is_empty:
                    logger.warning(
                        "%r: nothing was evaluated, as the run ended before its when= came; for an "
                        "end inside an epoch give when=Events.ITERATION_COMPLETED(every=...)",
                        self,
                    )

    def _result(
        self, state: State[Any, Any], iteration: int, *, is_end: bool = False
    ) -> dict[str, float] | None:
        """The metrics of a checkpoint, with its iteration, on all ranks; None if it is skipped."""
        with ranks.on_all_ranks("write a checkpoint that is to be evaluated"):
            self._checkpoint(state).wait(state)
        began, told = time.monotonic(), TELL
        while True:
            found: dict[str, Any] | None = None
            with ranks.on_all_ranks("read the result of an evaluation"):
                if ranks.rank() == 0:
                    found = self._look(state, iteration, is_end)
                    waited = time.monotonic() - began
                    if found is None and waited > self.patience:
                        raise TimeoutError(
                            f"{self._what(iteration)} is not there after {waited:.0f} seconds: "
                            f"start the script that evaluates by follow(..., name={self.name!r}), "
                            "then this one again; or go on without: late='skip'"
                        )
            if (found := ranks.from_first(found)) is not None:
                if "metrics" in found:
                    return {**found["metrics"], WEIGHTS_OF: float(iteration)}
                if ranks.rank() == 0:
                    logger.warning("%s: %s", self._what(iteration), found["skipped"])
                return None
            self._leave_if_asked(state)
            if ranks.rank() == 0:
                waited = time.monotonic() - began
                if waited >= told:
                    told = waited + TELL
                    logger.warning("waits for %s (%.0f s)", self._what(iteration), waited)
                time.sleep(min(LATEST, SOONEST + waited / 10))

    def _look(self, state: State[Any, Any], iteration: int, is_end: bool) -> dict[str, Any] | None:
        """What is decided about a checkpoint, on rank 0; None while that is open."""
        results, there = self._results(state), self._saved(state, iteration)
        name = state.recall(self, Awaited).results.get(f"{iteration}")
        if there:
            name = results.place(there[0]).name
        found = None if name is None else results.read(results.folder / name)
        if found is not None:
            return found
        is_mirrored = bool(state.engine.find(Mirror))
        if name is None or not (there or is_mirrored):  # a store may have it
            if self.late == "wait":
                raise FileNotFoundError(
                    f"{self._what(iteration)} cannot come, as no such checkpoint is in "
                    f"{results.directory}; to go on without: late='skip'"
                )
            return {"skipped": f"no such checkpoint is in {results.directory}"}
        if self.late == "wait":
            return None
        why = f"skipped, as there was no result at iteration {state.iteration}"
        said = {"checkpoint": name.partition(".")[0], "skipped": why}
        if is_end or results.write(results.folder / name, **said):
            return said
        return results.read(results.folder / name)  # it came just now

    def _leave_if_asked(self, state: State[Any, Any]) -> None:
        """Leave this moment, which a resumed run takes up here, if the run has to stop."""
        for each in state.engine.handlers.values():
            if isinstance(each, StopOnSignal | StopAfter):
                each.ask(state)
        if ranks.any_rank(state.control.leaves or state.is_interrupted):
            state.control.leaves = True
            if not ranks.any_rank(not can_leave(state)):
                raise Left

    def _note(self, state: State[Any, Any], iteration: int, metrics: dict[str, float]) -> None:
        """Note metrics in the checkpoint that they measure, by which claims choose."""
        with ranks.on_all_ranks("note metrics in a checkpoint"):
            if ranks.rank() == 0:
                home = self._checkpoint(state).recorder(state).depot.home
                own = {f"{self.name}/{each}": n for each, n in metrics.items()}
                written = {name: state.metrics.written(name) for name in own}
                for saved in self._saved(state, iteration):
                    home.add_metrics(saved, own, written)

    def _saved(self, state: State[Any, Any], iteration: int) -> list[Saved]:
        """The checkpoint of an iteration, as it was written last; none if it is gone."""
        found = self._checkpoint(state).recorder(state).depot.home.scan()
        return [each for each in found if each.manifest.iteration == iteration][-1:]

    def _what(self, iteration: int) -> str:
        return f"the result {self.name!r} of the checkpoint of iteration {iteration}"

    def _pending(self, state: State[Any, Any]) -> list[int]:
        return state.recall(self, Awaited).pending

    def _hold(self, state: State[Any, Any], pending: list[int]) -> None:
        """Await the results of these iterations, and let no claim drop their checkpoints.

        List and dict are new ones each time: a thread may be writing those before.
        """
        memory = state.recall(self, Awaited)
        known = {f"{n}": memory.results.get(f"{n}") for n in pending}
        memory.pending, memory.results = pending, {n: each for n, each in known.items() if each}
        others = state.engine.find(ValidateElsewhere)
        held = frozenset(n for each in others for n in each._pending(state))
        self._checkpoint(state).recorder(state).depot.held = held

    def _results(self, state: State[Any, Any]) -> Results:
        return Results(self._checkpoint(state).recorder(state).depot.directory, self.name)

    def _checkpoint(self, state: State[Any, Any]) -> Checkpoint:
        found = state.engine.find(Checkpoint)
        if len(found) != 1 or isinstance(found[0], LocalCheckpoint):
            there = ", ".join(type(each).__name__ for each in found) or "none"
            raise ValueError(
                f"{self!r}: needs one Checkpoint in its engine, to a directory that the script "
                f"which evaluates sees; there is {there}"
            )
        return found[0]

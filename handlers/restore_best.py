"""The best weights of a run, in the model when it is over."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

from torch.nn import Module

from ..engine import ranks
from ..engine.engine import Engine
from ..engine.events import EventEnum, Events, Trigger
from ..engine.modules.weights import exchange, put, twin
from ..engine.state.state import State
from .common.comparison import Mode, mode_of

logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class RestoreBest:
    """When the run is over, put the weights that were best by a metric back into the model.

    However it came to its end: by a limit, by EarlyStopping, by `state.stop`. A run that failed or
    was interrupted is not over and keeps the weights it has. NaN is never best, of equal values
    the earlier stays, and all ranks go by rank 0's value.

    The best weights are kept on the CPU, as `engine.objects[name]`, and saved with the run; so they
    cost the size of the model there and in each checkpoint. What a `Checkpoint` saves is never what
    was put back: a run that goes on, also by `run(state=...)`, does so with its own last weights.

    Args:
        monitor: The metric, such as `"val/loss"`.
        mode: `"min"` if smaller is better, `"max"` if larger is; it has to be said for a name such
            as `"val/accuracy"`.
        when: When to look: the trigger of what measures the metric, since it is the weights of
            this moment that are kept.
        weights: Whose weights the metric is about, such as `"ema"`; the model's own by default.
        model: Which of the engine's objects they are put into.
        name: What the best weights are called among them.

    Raises:
        ValueError: `mode` is neither of the two, or has to be said.

    >>> RestoreBest("val/accuracy", mode="highest")
    Traceback (most recent call last):
    ...
    ValueError: RestoreBest(mode='highest'): needs 'min' or 'max'
    """

    monitor: str
    mode: Mode | None = None
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED(last=True)
    weights: str | None = None
    model: str = "model"
    name: str = "best"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not isinstance(self.monitor, str):
            raise TypeError(f"RestoreBest({self.monitor!r}): needs the name of a metric")
        object.__setattr__(self, "mode", mode_of("RestoreBest", self.monitor, self.mode))

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Make room for the weights, look by the trigger, and put them back at the very end.

        Raises:
            ValueError: There is no such model, or the name is taken.
        """
        objects = engine.objects
        if not isinstance(objects.get(self.model), Module):
            modules = [name for name, each in objects.items() if isinstance(each, Module)]
            raise ValueError(
                f"RestoreBest(model={self.model!r}): needs a module among the engine's objects; "
                f"those are {', '.join(map(repr, modules)) or 'none'}"
            )
        if self.name in objects:
            raise ValueError(
                f"the engine has an object {self.name!r} already; give these weights another name: "
                f"RestoreBest(..., name='{self.name}_by_loss')"
            )
        objects[self.name] = twin(objects[self.model]).cpu()
        engine.on(Events.LOADING)(self.take_back)
        engine.on(self.when)(self.look)
        # Behind the last save, which is of the weights that the run ended with.
        engine.on(Events.CLOSED)(self.restore)

    def look(self, state: State[Any, Any]) -> None:
        """Keep the weights if the metric is better than any before.

        Raises:
            LookupError: The metric is of an earlier iteration, and so of other weights.
        """
        record = state.recall(self, Record)
        metrics = state.metrics
        if not metrics.is_new(self.monitor, record.looked_at):
            return
        record.looked_at = metrics.written(self.monitor)
        value = ranks.agreed(float(metrics[self.monitor]))
        if math.isnan(value):
            return
        best, objects = record.best, state.engine.objects
        if best is None or (value < best if self.mode == "min" else value > best):
            record.best = value
            put(objects[self.name], objects[self.weights or self.model])

    def restore(self, state: State[Any, Any]) -> None:
        """Put the best weights into the model, if the run is over."""
        if state.error is not None or state.stop_reason is None or state.is_interrupted:
            return
        record = state.recall(self, Record)
        if record.best is None:
            logger.warning(
                "RestoreBest: %s was never a number; the last weights stay", self.monitor
            )
        elif not record.is_restored:
            self._exchange(state, record)

    def take_back(self, state: State[Any, Any]) -> None:
        """Go on with the last weights of a run that is carried on.

        Raises:
            ValueError: The engine has no object called `weights`.
        """
        if self.weights is not None and self.weights not in state.engine.objects:
            raise ValueError(
                f"RestoreBest(weights={self.weights!r}): needs one of the engine's objects: "
                f"{', '.join(map(repr, state.engine.objects))}"
            )
        record = state.recall(self, Record)
        if record.is_restored:
            self._exchange(state, record)

    def _exchange(self, state: State[Any, Any], record: Record) -> None:
        objects = state.engine.objects
        exchange(objects[self.model], objects[self.name])
        record.is_restored = not record.is_restored


@dataclass
class Record:
    """The best value so far, and where the weights are that belong to it."""

    best: float | None = None
    looked_at: int = 0
    is_restored: bool = False
    """True while they are in the model, and the model's own last ones in their place."""

"""Steps with a loss far above the latest ones are skipped, or the weights go back."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from ...engine import Engine, Events, Stage, State, ranks
from ...engine.state import as_float
from ...engine.update import gradients_of, norm_of
from .rewind import Rewind, has_optimizer

logger = logging.getLogger("camshaft")

POLICIES = ("skip", "rewind")
GRAD_NORM = "grad_norm"


@dataclass(frozen=True, eq=False)
class SpikeGuard:
    """Keep batches whose loss is far above the latest losses out of the weights.

    The loss of a step is a spike if it is more than `deviations` standard deviations above the mean
    of the last `window` losses that were none, or if it is not finite. A deviation counts as at
    least a hundredth of the mean. Ranks judge the mean of their losses, so they decide together;
    that costs a message in each step. `monitor="grad_norm"` costs none under
    DistributedDataParallel, whose ranks have the same gradients: it judges their norm, of the
    whole window, in the place of the loss.
    Where gradients are accumulated, the loss of a step is that of its last batch. Each step waits
    for the value of its loss.

    With `"rewind"`, weights and optimizers also go back by `steps` to `2 * steps` steps, to a copy
    in the host's memory. Clocks, schedules and data go on, so that other batches follow: the remedy
    of PaLM (Chowdhery et al., 2022, section 5.1, [arXiv:2204.02311](https://arxiv.org/abs/2204.02311)).
    There are two copies of what the optimizers train, also in each checkpoint, so that a resumed
    run goes back to the same weights.

    Args:
        policy: `"skip"` discards the step; `"rewind"` discards it and goes back.
        monitor: The loss, a metric that the process function writes before its update; or
            `"grad_norm"` for the norm of the step's gradients before clipping.
        deviations: The number of standard deviations.
        window: The number of losses; as many steps at the beginning are not judged.
        steps: With `"rewind"`, the number of steps from one copy to the next.
        limit: The largest number of spikes in a row; the run fails after one more.

    Raises:
        ValueError: An argument is not among those named here, or not positive.

    >>> SpikeGuard("rewind", steps=500).policy
    'rewind'
    """

    policy: str = "skip"
    monitor: str = "loss"
    deviations: float = 6.0
    window: int = 100
    steps: int = 100
    limit: int = 10
    in_trials: ClassVar[bool] = False
    """It takes no part in `find_lr`, where the loss is meant to grow."""

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"SpikeGuard({self.policy!r}): needs 'skip' or 'rewind'")
        least = {"deviations": 0, "window": 1, "steps": 0, "limit": 0}
        for name, bound in least.items():
            if not getattr(self, name) > bound:
                raise ValueError(
                    f"SpikeGuard({name}={getattr(self, name)!r}): needs a number above {bound}"
                )

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Judge complete gradients; with "rewind", copy what the optimizers train.

        Raises:
            ValueError: The engine knows no optimizer, or the name "rewind" is taken.
        """
        engine.on(Events.BACKWARD_COMPLETED, stage=Stage.MEASURE)(self.judge)
        if self.policy == "rewind":
            if not has_optimizer(engine.objects) or "rewind" in engine.objects:
                raise ValueError(
                    "SpikeGuard('rewind') needs the model and its optimizer among the engine's "
                    'objects, and the name "rewind" free: Engine(..., objects={"model": model, '
                    f'"optimizer": optimizer}}); there are {", ".join(engine.objects) or "none"}'
                )
            engine.objects["rewind"] = Rewind()
            engine.on(Events.STARTED)(self.begin)
            engine.on(Events.STEP_COMPLETED(every=self.steps))(self.copy)
            # After NonFiniteGuard, which puts buffers back to before this step.
            engine.on(Events.STEP_SKIPPED)(self.go_back)

    def judge(self, state: State[Any, Any]) -> None:
        """Skip the step if its loss is a spike."""
        losses = state.recall(self, Losses)
        loss = self._norm(state) if self.monitor == GRAD_NORM else self._loss(state, losses)
        limit = losses.limit(self.window, self.deviations)
        if math.isfinite(loss) and loss <= limit:
            losses.accept(loss, self.window)
            return
        what, many = ("gradient norm", "norms") if self.monitor == GRAD_NORM else ("loss", "losses")
        losses.in_a_row += 1
        losses.spikes += 1
        state.metrics["spikes"] = losses.spikes
        if losses.in_a_row > self.limit:
            raise FloatingPointError(
                f"SpikeGuard: {losses.in_a_row} {many} in a row are above {limit:.4g}, the last "
                f"one is {loss:.4g}, in iteration {state.iteration}. Look at the batch in "
                f"state.batch and at the learning rate; if the {what} has a new level because "
                "the data is another, pass a larger deviations= or limit="
            )
        state.skip_step()
        losses.must_go_back = self.policy == "rewind"
        logger.warning(
            "SpikeGuard: the %s of iteration %d is %.4g, above %.4g; its step is skipped",
            *(what, state.iteration, loss, limit),
        )

    def begin(self, state: State[Any, Any]) -> None:
        """Make the first copy, unless the run is resumed and has one."""
        rewind = state.engine.objects["rewind"]
        if not rewind.copies:
            rewind.copy(state.engine.objects, state.step)

    def copy(self, state: State[Any, Any]) -> None:
        """Copy what the optimizers train."""
        state.engine.objects["rewind"].copy(state.engine.objects, state.step)

    def go_back(self, state: State[Any, Any]) -> None:
        """Put the earlier copy back, if a spike was the reason to skip the step."""
        losses = state.recall(self, Losses)
        if losses.must_go_back:
            losses.must_go_back = False
            step = state.engine.objects["rewind"].put_back(state.engine.objects)
            logger.warning("SpikeGuard: the weights go back to those of step %d", step)

    def _norm(self, state: State[Any, Any]) -> float:
        """The norm of averaged gradients, which is the same on all ranks."""
        return float(norm_of(gradients_of(state.optimizer), 2.0))

    def _loss(self, state: State[Any, Any], losses: Losses) -> float:
        if self.monitor not in state.metrics.since(losses.write):
            raise LookupError(
                f"SpikeGuard judges the metric {self.monitor!r} of each step, and this step has "
                f'not written it before its update: state.metrics["{self.monitor}"] = '
                "loss.detach() goes above update(state, loss)"
            )
        losses.write = state.metrics.writes
        loss = state.metrics[self.monitor]
        loss = loss if isinstance(loss, Tensor) else as_float(loss)
        return float(ranks.total(loss)) / ranks.world_size()


@dataclass
class Losses:
    """The latest losses that were no spikes."""

    latest: list[float] = field(default_factory=list)
    spikes: int = 0
    in_a_row: int = 0
    must_go_back: bool = False
    write: int = 0
    """The last write of a metric that was looked at."""

    def limit(self, window: int, deviations: float) -> float:
        """The largest loss that is no spike."""
        if len(self.latest) < window:
            return math.inf
        mean = sum(self.latest) / window
        variance = sum((loss - mean) ** 2 for loss in self.latest) / window
        return mean + deviations * max(math.sqrt(variance), abs(mean) / 100)

    def accept(self, loss: float, window: int) -> None:
        """Count a loss among the latest."""
        self.in_a_row = 0
        # A new list: a checkpoint that is written in the background may still hold the old one.
        self.latest = [*self.latest[-window + 1 :], loss] if window > 1 else [loss]

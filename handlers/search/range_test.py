"""What a learning-rate range test does in each step."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from ...engine import Events, State, ranks
from ...engine.state import as_float
from ..common import given, write
from .lr_curve import smoothed

Loss = str | Callable[[State[Any, Any]], Any]


@dataclass(eq=False)
class RangeTest:
    """Sets the rate of each step, and notes the loss of each."""

    optimizer: Optimizer
    plan: list[float]
    """The rate of each window."""
    loss: Loss
    divergence: float
    rates: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    diverged: bool = False
    number: int = 0
    """Windows so far, those whose step was skipped included."""
    made: int = 0
    """Steps of the optimizer so far."""
    judged: tuple[int, int] = (0, 0)
    """The steps made and skipped up to the last window."""
    total: Any = 0.0
    """The sum of the losses in the window at hand, on their device."""
    count: int = 0

    def __post_init__(self) -> None:
        given_rates = [float(given(group)["lr"]) for group in self.optimizer.param_groups]
        if not max(given_rates) > 0:
            raise ValueError("find_lr: needs an optimizer with a learning rate above 0")
        self.shares = [rate / max(given_rates) for rate in given_rates]

    @contextmanager
    def at_each_step(self) -> Generator[None]:
        """Within a `with` block, set the rates before each step of the optimizer, and count it."""
        before = self.optimizer.register_step_pre_hook(self.set_rates)
        after = self.optimizer.register_step_post_hook(self.count_step)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def set_rates(self, *_: Any) -> None:
        """Set the rate of each group."""
        rate = self.plan[min(self.number, len(self.plan) - 1)]
        for group, share in zip(self.optimizer.param_groups, self.shares, strict=False):
            write(group, "lr", rate * share)

    def count_step(self, *_: Any) -> None:
        """Count a step that was made, whoever called for it."""
        self.made += 1

    def add(self, state: State[Any, Any]) -> None:
        """Add the loss of a batch; judge the window if its step was made or skipped."""
        if (loss := _loss_of(state, self.loss)) is not None:
            self.total = self.total + (
                loss.detach() if isinstance(loss, Tensor) else as_float(loss)
            )
            self.count += 1
        self.judge(state)

    def end_epoch(self, state: State[Any, Any]) -> None:
        """Judge a window that ended with the data; check that there are steps at all."""
        self.judge(state)
        if not self.number:
            raise RuntimeError(
                f"find_lr: an epoch made no step of the {type(self.optimizer).__name__}; the "
                "process function has to make one, or pass optimizer=, the one that it steps"
            )

    def judge(self, state: State[Any, Any]) -> None:
        """Note the mean loss of a window that is over, and stop at the end of the test."""
        seen = (self.made, state.counts[Events.STEP_SKIPPED])
        if seen == self.judged or self.diverged or self.number == len(self.plan):
            return
        stepped, self.judged = seen[0] > self.judged[0], seen
        loss = self._mean(state)
        if not math.isfinite(loss):
            self.diverged = True
        elif stepped:
            self.rates.append(self.plan[self.number])
            self.losses.append(loss)
            means = smoothed(self.losses)
            least = min(means)
            self.diverged = means[-1] > least + (self.divergence - 1) * abs(least)
        self.number += 1
        if self.diverged or self.number == len(self.plan):
            state.stop("the loss diverged" if self.diverged else "the largest rate was tried")

    def _mean(self, state: State[Any, Any]) -> float:
        """The mean loss of the window, on all ranks."""
        total, count = ranks.total(float(self.total)), ranks.total(self.count)
        self.total, self.count = 0.0, 0
        if not count:
            raise LookupError(
                f"find_lr: no {self.loss!r} in the metrics {[*state.metrics]} or in the output, a "
                f"{type(state.output).__name__}; write state.metrics['loss'] in the process "
                "function, or pass loss=, the name or a function of the state"
            )
        return float(total / count)


def _loss_of(state: State[Any, Any], loss: Loss) -> Any:
    """The loss of this iteration; None if there is none."""
    if not isinstance(loss, str):
        return loss(state)
    if loss in state.metrics:
        with suppress(LookupError):  # of an earlier iteration
            return state.metrics.fresh(loss)
        return None
    output = state.output
    if isinstance(output, Mapping):
        return output.get(loss)
    is_number = isinstance(output, int | float) or (isinstance(output, Tensor) and not output.ndim)
    return output if is_number else getattr(output, loss, None)

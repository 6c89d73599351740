"""The learning-rate range test."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from ....engine import Engine, Events, State, ranks
from ....engine.state import as_float
from ...common import given, write
from .lr_curve import LRCurve, smoothed
from .trial import as_before, trial_engine

logger: logging.Logger = logging.getLogger("camshaft")

Loss = str | Callable[[State[Any, Any]], Any]


def find_lr(
    engine: Engine[Any, Any],
    data: Iterable[Any],
    *,
    start: float = 1e-7,
    end: float = 10.0,
    steps: int = 100,
    loss: Loss = "loss",
    optimizer: Optimizer | None = None,
    divergence: float = 4.0,
) -> LRCurve:
    """Train with a learning rate that grows from step to step; return the loss at each rate.

    The steps are the engine's own, with accumulation, precision, ranks and clipping. Handlers that
    log, save, schedule or evaluate are not called. Afterwards everything is as it was, to the last
    bit: modules, optimizers and schedules, random generators, and the place in the data.

    Smith, 2017: Cyclical learning rates for training neural networks.

    Args:
        engine: The engine that is going to train. Its modules have to be among its `objects`.
        data: The batches to train on, which are read again if there are fewer; no iterator, since
            its batches would be missing later.
        start: The smallest rate. Where parameter groups have different rates, this is the rate of
            the group with the largest, and the others keep their ratio to it.
        end: The largest rate.
        steps: The number of optimizer steps, in each of which the rate grows by the same factor.
        loss: The name of the loss, in `state.metrics` or in the output; or a function of the state
            that gives it.
        optimizer: The optimizer whose rate grows; `engine.objects["optimizer"]` by default.
        divergence: The test ends when the smoothed loss is so many times its smallest value, or
            when the loss is not finite.

    Raises:
        TypeError: `data` is an iterator.
        ValueError: The numbers do not make a range, there is no module or no such optimizer, or the
            loss is never finite.
        LookupError: There is no such loss.
    """
    test = RangeTest(_optimizer(engine, optimizer), _plan(start, end, steps), loss, divergence)
    trial = trial_engine(engine)
    trial.signal(Events.ITERATION_COMPLETED).connect(test.add)
    trial.signal(Events.EPOCH_COMPLETED).connect(test.end_epoch)
    with as_before(engine, data, test.optimizer), test.at_each_step():
        try:
            trial.run(data, max_epochs=sys.maxsize)
        except FloatingPointError as error:  # from NonFiniteGuard, or a too small scale
            logger.info("the learning-rate test ends: %s", error)
            test.diverged = True
    if not test.losses:
        raise ValueError(
            f"find_lr: the loss is not finite from the first step on, at a rate of {start:.2g}; "
            "look at the data and at the loss"
        )
    return LRCurve(test.rates, test.losses, test.diverged)


def _plan(start: float, end: float, steps: int) -> list[float]:
    """Rates from the smallest to the largest, each the same multiple of the one before.

    >>> _plan(0.01, 1.0, 3)
    [0.01, 0.1, 1.0]
    """
    if type(steps) is not int or steps < 2:
        raise ValueError(f"find_lr(steps={steps!r}): needs a number of steps, from 2")
    if not 0 < start < end < math.inf:
        raise ValueError(
            f"find_lr(start={start!r}, end={end!r}): needs rates above 0, the larger one as end="
        )
    return [start * (end / start) ** (number / (steps - 1)) for number in range(steps)]


def _optimizer(engine: Engine[Any, Any], chosen: Optimizer | None) -> Optimizer:
    """The chosen optimizer, or the engine's."""
    found = engine.objects.get("optimizer") if chosen is None else chosen
    if not isinstance(found, Optimizer):
        optimizers = [name for name, each in engine.objects.items() if isinstance(each, Optimizer)]
        raise ValueError(
            f"find_lr: got {found!r} for the optimizer; pass optimizer=, the one whose rate is "
            f"looked for; the engine's objects have {', '.join(map(repr, optimizers)) or 'none'}"
        )
    return found


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
    """Windows so far, including windows with a skipped step."""
    made: int = 0
    """Steps of the optimizer so far."""
    judged: tuple[int, int] = (0, 0)
    """The steps made and skipped up to the last window."""
    total: Any = 0.0
    """The sum of the losses in the current window, on their device."""
    count: int = 0

    def __post_init__(self) -> None:
        given_rates = [float(given(group)["lr"]) for group in self.optimizer.param_groups]
        if not max(given_rates) > 0:
            raise ValueError("find_lr: needs an optimizer with a learning rate above 0")
        self.ratios: list[float] = [rate / max(given_rates) for rate in given_rates]

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
        for group, ratio in zip(self.optimizer.param_groups, self.ratios, strict=False):
            write(group, "lr", rate * ratio)

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

"""The learning-rate range test."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterable
from typing import Any

from torch.optim import Optimizer

from ...engine import Engine, Events
from .as_before import as_before
from .lr_curve import LRCurve
from .range_test import Loss, RangeTest
from .trial_engine import trial_engine

logger = logging.getLogger("camshaft")


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
        except FloatingPointError as error:  # of a NonFiniteGuard, or of a scale that is too small
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
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 2:
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

"""Evaluations with the model in training mode, or with metrics of only one batch."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sized
from typing import Any

from ..events import Events
from ..explain import warn
from .checked import After, Check, Checked


def check_mode(run: Checked) -> None:
    """Warn if an evaluation leaves the model in training mode."""
    if run.trained and run.weights.isdisjoint(run.trained) and _is_in_a_module(run.trained):
        warn(
            "no module among the engine's objects has the parameters that its optimizer updates, "
            "so this evaluation leaves their module in training mode; name it: "
            'Engine(..., objects={"model": model, "optimizer": optimizer})'
        )


def check_dropped(run: Checked) -> None:
    """Warn if a loader with `drop_last=True` leaves samples out of an evaluation."""
    batches = getattr(run.state.control.data, "batch_sampler", None)
    size, ones = getattr(batches, "batch_size", None), getattr(batches, "sampler", None)
    if getattr(batches, "drop_last", False) is not True or not isinstance(size, int):
        return
    samples = len(ones) if isinstance(ones, Sized) else 0
    is_whole = run.state.epoch_length == samples // size  # and not cut by epoch_length=
    if is_whole and (left := samples % size):
        warn(
            f"this evaluation leaves out {left} of its {samples} samples, since its loader has "
            "drop_last=True: make a loader without it for evaluations and predictions"
        )


def _is_in_a_module(parameters: set[int]) -> bool:
    """True if a module of the process has one of these; lists of parameters have no mode."""
    nn: Any = sys.modules["torch.nn"]
    plain = (nn.ParameterList, nn.ParameterDict)
    found = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
    held = (one for each in found if not isinstance(each, plain) for one in each.parameters())
    return any(id(one) in parameters for one in held)


def check_averaged(run: Checked) -> Check:
    """Warn of a metric that each batch of an evaluation writes, and no handler averages.

    There is no warning if a function has a memory, since it may keep a running mean there.
    """
    yield (Events.EPOCH_COMPLETED,)
    state, metrics = run.state, run.state.metrics
    writes = metrics.writes  # up to the last batch, before the handlers after the batches
    yield (After(Events.COMPLETED),)
    memories = (*state.memory.saved, *state.memory.unsaved)
    if state.iteration < 2 or any(each.endswith(("()", "engine.process")) for each in memories):
        return
    for name in metrics:
        is_of_batch = metrics.written(name) <= writes and metrics.is_fresh(name)
        if is_of_batch and _is_measured(metrics[name]):
            warn(
                f"the metric {name!r} of an evaluation is that of its last batch alone: the "
                "process function writes it for each batch, and no handler averages it. "
                f"engine.add(Average({name!r})) makes it the mean over all samples"
            )


def _is_measured(value: Any) -> bool:
    """True for a float or a floating-point tensor of one number; false for a count."""
    is_floating = getattr(value, "is_floating_point", lambda: isinstance(value, float))
    return getattr(value, "ndim", 0) == 0 and is_floating()

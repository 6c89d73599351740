"""Gradient clipping, after an accumulation window and before the optimizer's step."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any

from torch import Tensor
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import Optimizer

from ..engine import Engine, Events, State
from ..engine.modules import are_spread, locals_of
from ..engine.update import are_plain, gradients_of, norm_of, parameters_of, scale
from .common import stepping


@dataclass(frozen=True, eq=False)
class ClipGradNorm:
    """Scale the gradients of a step down to a norm of at most `max_norm`.

    The norm before clipping becomes the metric `"grad_norm"`. By default the gradients of every
    optimizer are clipped as they become ready, each optimizer by itself. With a `name` the metric
    is `"grad_norm/<name>"`, for several optimizers.

    Pascanu, Mikolov and Bengio, 2013: On the difficulty of training recurrent neural networks.

    >>> ClipGradNorm(1.0)
    ClipGradNorm(max_norm=1.0, norm_type=2.0, optimizer=None, name=None)
    """

    max_norm: float
    _: KW_ONLY
    norm_type: float = 2.0
    optimizer: Optimizer | None = None
    """Clip for this optimizer only."""
    name: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.max_norm, Real) and self.max_norm > 0):
            raise ValueError(f"ClipGradNorm(max_norm={self.max_norm!r}): needs a number above 0")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Clip when gradients are ready."""
        engine.on(Events.GRADIENTS_READY)(self.clip)

    def clip(self, state: State[Any, Any]) -> None:
        """Clip, and write the norm before clipping."""
        if optimizer := stepping(state, self.optimizer, "ClipGradNorm"):
            compiled = state.step_under_way.compiled
            if compiled is None or are_spread(parameters_of(optimizer)):
                norm = _clip(optimizer, self.max_norm, self.norm_type)
            else:
                clip = compiled.of(clip_grad_norm_)
                norm = clip(parameters_of(optimizer), self.max_norm, self.norm_type)
            state.metrics["grad_norm" if self.name is None else f"grad_norm/{self.name}"] = norm


@dataclass(frozen=True, eq=False)
class ClipGradValue:
    """Cut each element of the gradients of a step to between -`max_value` and `max_value`."""

    max_value: float
    _: KW_ONLY
    optimizer: Optimizer | None = None
    """Clip for this optimizer only."""

    def __post_init__(self) -> None:
        if not (isinstance(self.max_value, Real) and self.max_value > 0):
            raise ValueError(f"ClipGradValue(max_value={self.max_value!r}): needs a number above 0")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Clip when gradients are ready."""
        engine.on(Events.GRADIENTS_READY)(self.clip)

    def clip(self, state: State[Any, Any]) -> None:
        """Clip."""
        if optimizer := stepping(state, self.optimizer, "ClipGradValue"):
            if are_spread(gradients := gradients_of(optimizer)):
                for each in locals_of(gradients):
                    each.clamp_(-self.max_value, self.max_value)
            else:
                compiled = state.step_under_way.compiled
                clip = clip_grad_value_ if compiled is None else compiled.of(clip_grad_value_)
                clip(parameters_of(optimizer), self.max_value)


def _clip(optimizer: Optimizer, most: float, kind: float) -> Tensor:
    """Clip as torch does, by the same operations.

    Torch wants all gradients on one mesh of ranks, or on none, and runs Python for each of them.
    """
    gradients = gradients_of(optimizer)
    if not (are_plain(gradients) or are_spread(gradients)):  # of several devices or types, or none
        return clip_grad_norm_(parameters_of(optimizer), most, kind)
    norm = norm_of(gradients, kind)
    scale(gradients, (most / (norm + 1e-6)).clamp(max=1.0))
    return norm

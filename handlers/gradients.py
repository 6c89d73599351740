"""Gradients of a whole accumulation window, before the optimizer's step: their norm, clipping."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import Optimizer

from ..engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ..engine.modules import are_spread, locals_of, parameters_of
from ..engine.update import Gradients, ready_gradients


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

    shares_norm: ClassVar[bool] = True
    max_norm: float
    _: KW_ONLY
    norm_type: float = 2.0
    optimizer: Optimizer | str | None = None
    """Clip for this optimizer only, or for the one of this name among the objects."""
    name: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.max_norm, Real) and self.max_norm > 0):
            raise ValueError(f"ClipGradNorm(max_norm={self.max_norm!r}): needs a number above 0")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Clip when gradients are ready."""
        engine.on(Events.GRADIENTS_READY)(self.clip)

    def clip(self, state: State[Any, Any]) -> None:
        """Clip, and write the norm before clipping."""
        if gradients := ready_gradients(state, self.optimizer, "ClipGradNorm"):
            is_plain = gradients.is_plain and gradients.compiled is None
            some = gradients.tensors[:1] if gradients.is_plain else gradients.tensors  # all alike
            if is_plain or are_spread(gradients.tensors) or any(map(_is_odd, some)):
                # The same operations as torch's function, which wants all gradients on one mesh of
                # ranks, or on none, knows no sparse ones, takes the norm of float16 in float16, and
                # runs Python for each of them.
                norm = gradients.norm(self.norm_type)
                gradients.scale((self.max_norm / (norm + 1e-6)).clamp(max=1.0))
            else:  # compiled, or of several devices or types, or without any gradient
                clip = gradients.change_by(clip_grad_norm_)
                norm = clip(parameters_of(gradients.optimizer), self.max_norm, self.norm_type)
            state.metrics["grad_norm" if self.name is None else f"grad_norm/{self.name}"] = norm


@dataclass(frozen=True, eq=False)
class ClipGradValue:
    """Cut each element of the gradients of a step to between -`max_value` and `max_value`."""

    shares_norm: ClassVar[bool] = True
    max_value: float
    _: KW_ONLY
    optimizer: Optimizer | str | None = None
    """Clip for this optimizer only, or for the one of this name among the objects."""

    def __post_init__(self) -> None:
        if not (isinstance(self.max_value, Real) and self.max_value > 0):
            raise ValueError(f"ClipGradValue(max_value={self.max_value!r}): needs a number above 0")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Clip when gradients are ready."""
        engine.on(Events.GRADIENTS_READY)(self.clip)

    def clip(self, state: State[Any, Any]) -> None:
        """Clip."""
        if gradients := ready_gradients(state, self.optimizer, "ClipGradValue"):
            for parameter in parameters_of(gradients.optimizer) if _has_sparse(gradients) else ():
                # It may name an element several times, and means the sum.
                if parameter.grad is not None and parameter.grad.is_sparse:
                    parameter.grad = parameter.grad.coalesce()
            if are_spread(gradients.look().tensors) or _has_sparse(gradients):
                gradients.norms.clear()
                for each in locals_of(gradients.tensors):
                    part = each._values() if each.is_sparse else each
                    part.clamp_(-self.max_value, self.max_value)
            elif gradients.tensors:  # torch fails without gradients
                clip = gradients.change_by(clip_grad_value_)
                try:
                    clip(parameters_of(gradients.optimizer), self.max_value)
                except NotImplementedError as error:
                    raise TypeError(
                        "ClipGradValue cannot cut these gradients, such as complex ones, of which "
                        f"none is larger than another: {error}. Take ClipGradNorm"
                    ) from error


@dataclass(frozen=True, eq=False)
class GradNorm:
    """Write the norm of a step's gradients as the metric `"grad_norm"`, and do not change them.

    The norm is the one before clipping, wherever the handler is attached. The metric is a tensor:
    the host waits for the device only when the metric is reported. `ClipGradNorm` writes the same
    metric, so a run that clips by norm needs no `GradNorm`.

    Args:
        norm_type: 2 for the Euclidean norm; `float("inf")` for the largest magnitude.
        optimizer: Look at the gradients of this optimizer only; also its name in `engine.objects`.
        name: For several optimizers: the metric is then `"grad_norm/<name>"`.
        check: True to compare the norms of all ranks and raise if they differ. Each comparison
            waits for the device, so make it rarely: `when=Events.GRADIENTS_READY(every=100)`.
        when: When to measure.

    >>> GradNorm(name="critic").written_metric
    'grad_norm/critic'
    """

    shares_norm: ClassVar[bool] = True
    norm_type: float = 2.0
    _: KW_ONLY
    optimizer: Optimizer | str | None = None
    name: str | None = None
    check: bool = False
    when: EventEnum | Trigger = Events.GRADIENTS_READY

    @property
    def written_metric(self) -> str:
        """The name of the metric."""
        return "grad_norm" if self.name is None else f"grad_norm/{self.name}"

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Measure by the trigger, before any handler changes the gradients."""
        engine.on(self.when, stage=Stage.MEASURE)(self.measure)

    def measure(self, state: State[Any, Any]) -> None:
        """Write the norm."""
        if gradients := ready_gradients(state, self.optimizer, "GradNorm"):
            value = state.metrics[self.written_metric] = gradients.norm(self.norm_type)
            if self.check:
                _compare(ranks.gathered(float(value)), state.step + 1)


def _is_odd(gradient: Tensor) -> bool:
    return gradient.is_sparse or gradient.dtype is torch.float16


def _has_sparse(gradients: Gradients) -> bool:
    return not gradients.is_plain and any(each.is_sparse for each in gradients.tensors)


def _compare(norms: list[float], step: int) -> None:
    """Raise if the norms of the ranks differ; NaN on all ranks is accepted."""
    same = all(
        math.isclose(each, norms[0], rel_tol=1e-6) or (math.isnan(each) and math.isnan(norms[0]))
        for each in norms
    )
    if not same:
        listed = ", ".join(f"rank {rank} has {each:.9g}" for rank, each in enumerate(norms))
        raise RuntimeError(
            f"the ranks have different gradients at step {step}: their norm is {listed}. Wrap the "
            "model in DistributedDataParallel, and pass it as model= to Update"
        )

"""The norm of the gradients as a metric, clipped or not."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

from torch.optim import Optimizer

from ..engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ..engine.update import gradients_of, norm_of
from .common import stepping


@dataclass(frozen=True, eq=False)
class GradNorm:
    """Write the norm of a step's gradients as the metric `"grad_norm"`, and do not change them.

    The norm is the one before clipping, wherever the handler is attached. The metric is a tensor:
    the host waits for the device only when the metric is reported. `ClipGradNorm` writes the same
    metric, so a run that clips by norm needs no `GradNorm`.

    Args:
        norm_type: 2 for the Euclidean norm; `float("inf")` for the largest magnitude.
        optimizer: Look at the gradients of this optimizer only.
        name: For several optimizers: the metric is then `"grad_norm/<name>"`.
        check: True to compare the norms of all ranks and raise if they differ. Each comparison
            waits for the device, so make it rarely: `when=Events.GRADIENTS_READY(every=100)`.
        when: When to measure.

    >>> GradNorm(name="critic").written_metric
    'grad_norm/critic'
    """

    norm_type: float = 2.0
    _: KW_ONLY
    optimizer: Optimizer | None = None
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
        if optimizer := stepping(state, self.optimizer, "GradNorm"):
            value = state.metrics[self.written_metric] = norm_of(
                gradients_of(optimizer), self.norm_type
            )
            if self.check:
                _compare(ranks.gathered(float(value)), state.step + 1)


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

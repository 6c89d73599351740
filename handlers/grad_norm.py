"""The norm of the gradients as a metric, clipped or not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer

from ..engine import ranks
from ..engine.engine import Engine
from ..engine.events import EventEnum, Events, Stage, Trigger
from ..engine.state.state import State
from ..engine.update import gradients_of, norm_of


@dataclass(frozen=True, eq=False)
class GradNorm:
    """Write the norm of a step's gradients as the metric `"grad_norm"`; they stay as they are.

    It is the norm before clipping, wherever the handler is attached. The metric is a tensor:
    nothing waits for the device until something reports it. `ClipGradNorm` writes the same metric,
    so a run that clips by norm needs no `GradNorm`.

    Args:
        norm_type: 2 for the Euclidean norm; `float("inf")` for the largest magnitude.
        optimizer: Look at the gradients of this optimizer only.
        name: Where there are several optimizers: the metric is then `"grad_norm/<name>"`.
        check: Compare the norms of all ranks and raise if they differ. Each look waits for the
            device, so look now and then: `when=Events.GRADIENTS_READY(every=100)`.
        when: When to look.

    >>> GradNorm(name="critic").metric
    'grad_norm/critic'
    """

    norm_type: float = 2.0
    optimizer: Optimizer | None = None
    name: str | None = None
    check: bool = False
    when: EventEnum | Trigger = Events.GRADIENTS_READY

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return "grad_norm" if self.name is None else f"grad_norm/{self.name}"

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Look when gradients are ready, before anybody changes them."""
        engine.on(self.when, stage=Stage.MEASURE)(self.measure)

    def measure(self, state: State[Any, Any]) -> None:
        """Write the norm.

        Raises:
            RuntimeError: The norms of the ranks differ.
        """
        optimizer = state.optimizer or self.optimizer
        if optimizer is None:
            raise RuntimeError(
                "GradNorm does not know whose gradients are ready: make the step with Update, or "
                "pass optimizer= to GradNorm"
            )
        if self.optimizer is not None and optimizer is not self.optimizer:
            return
        value = state.metrics[self.metric] = norm_of(gradients_of(optimizer), self.norm_type)
        if self.check:
            _compare(ranks.gathered(float(value)), state.step + 1)


def _compare(norms: list[float], step: int) -> None:
    """Raise if the ranks' norms differ; all of them may be NaN."""
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

"""Steps whose gradients are no numbers: discarded before they reach the weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..engine import ranks
from ..engine.engine import Engine
from ..engine.events import Events, Stage
from ..engine.modules import buffers_in_training
from ..engine.state import State
from ..engine.update.gradients import gradients_of, is_broken

POLICIES = ("raise", "stop", "skip", "retry")


@dataclass(frozen=True, eq=False)
class NonFiniteGuard:
    """Keep NaN and infinity out of the weights: no step is made with such gradients or such a loss.

    A window is judged when its gradients are complete and before anybody else sees them, on all
    ranks together. Whatever the policy, weights and optimizer stay as they were before the bad
    step, and the metric that is looked at keeps its NaN in the logs.

    Args:
        policy: `"raise"` ends the run with `FloatingPointError`, so that it is not taken for a
            finished one; `"stop"` ends it for good, with what is due at its end. `"skip"` and
            `"retry"` discard the window and make the step with the next batches: `"retry"` gives
            up, with the error, after `limit` discarded windows in a row.
        limit: Also for `"skip"`: the most windows in a row that may be discarded.
        every: With `"raise"` and `"stop"`, look at the device once in so many steps. In between, a
            fused optimizer (`fused=True`) is told on the device to leave the weights alone; for
            others there is one look a step, as for `"skip"` and `"retry"`.
        monitor: A loss among the metrics that is judged with the gradients; None for gradients
            alone.

    >>> NonFiniteGuard("retry", limit=5).limit
    5
    """

    policy: str = "raise"
    limit: int | None = None
    every: int = 50
    monitor: str | None = "loss"

    def __post_init__(self) -> None:
        """Refuse what is no policy or no count."""
        if self.policy not in POLICIES:
            raise ValueError(
                f"NonFiniteGuard({self.policy!r}): needs one of {', '.join(map(repr, POLICIES))}"
            )
        if self.limit is not None and (self.limit < 1 or self.policy in ("raise", "stop")):
            raise ValueError(
                f"NonFiniteGuard({self.policy!r}, limit={self.limit!r}): needs a number from 1, "
                "and the policy 'skip' or 'retry'"
            )
        if self.every < 1:
            raise ValueError(f"NonFiniteGuard(every={self.every!r}): needs a number from 1")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Judge complete gradients; look at a pending judgement before anything is saved."""
        engine.on(Events.BACKWARD_COMPLETED, stage=Stage.MEASURE)(self.judge)
        engine.on(Events.ITERATION_STARTED, stage=Stage.MEASURE)(self.keep_buffers)
        engine.on(Events.STEP_SKIPPED, stage=Stage.MEASURE)(self.put_buffers_back)
        engine.on(Events.COMPLETED | Events.SAVING, stage=Stage.MEASURE)(self.look)
        engine.on(Events.CLOSED)(self.let_go)

    def judge(self, state: State[Any, Any]) -> None:
        """Have the step skipped if it would spoil the weights."""
        verdict, judged = state.recall(self, Verdict, saved=False), state.recall(self, Judged)
        bad = self._is_bad(state, judged)
        if self.policy in ("raise", "stop") and _is_fused(state.optimizer):
            judged.count += 1
            # Where each optimizer has a clock of its own, `state.step` stands still.
            verdict.protect(state.optimizer, bad, max(state.step + 1, judged.count))
            if judged.count % self.every == 0:
                self.look(state)
            return
        if not bool(bad):
            judged.in_a_row = 0
            return
        state.skip_step()
        judged.in_a_row += 1
        most = self.limit or (10 if self.policy == "retry" else None)
        if self.policy == "stop":
            state.stop(_says(state.step + 1))
        elif self.policy == "raise" or (most is not None and judged.in_a_row > most):
            verdict.put_buffers_back()
            raise FloatingPointError(_teach(state, state.step + 1, judged.in_a_row))

    def look(self, state: State[Any, Any]) -> None:
        """Act on what the device has noted since the last look."""
        verdict = state.recall(self, Verdict, saved=False)
        if verdict.first is None or not (step := int(verdict.first)):
            return
        verdict.put_buffers_back()
        if self.policy == "raise":
            raise FloatingPointError(_teach(state, step, 1))
        state.stop(_says(step))

    def keep_buffers(self, state: State[Any, Any]) -> None:
        """Copy what a forward pass over bad data would spoil, such as running means."""
        if state.is_running and not state.step_under_way.windows:  # between two steps
            state.recall(self, Verdict, saved=False).copy(state.engine.objects.values())

    def put_buffers_back(self, state: State[Any, Any]) -> None:
        """Undo what a discarded step's forward passes did; a scaler may have discarded it."""
        state.recall(self, Verdict, saved=False).put_buffers_back()

    def let_go(self, state: State[Any, Any]) -> None:
        """Take away what the optimizers were told."""
        try:
            if state.is_interrupted and state.error is None:  # no COMPLETED has looked
                self.look(state)
        finally:
            state.recall(self, Verdict, saved=False).release()

    def _is_bad(self, state: State[Any, Any], judged: Judged) -> Tensor:
        """1.0 or more on every rank if something is not finite on one, without waiting for it."""
        bad = is_broken(gradients_of(state.optimizer))
        new = state.metrics.since(judged.writes)
        judged.writes = state.metrics.writes
        if self.monitor in new:
            finite = torch.as_tensor(new[self.monitor]).detach().isfinite().all()
            bad = bad + (~finite).to(bad.device, non_blocking=True)
        return torch.as_tensor(ranks.total(bad))


@dataclass
class Judged:
    """How many windows in a row were discarded, and the last metric that was looked at."""

    count: int = 0
    """Windows judged on the device."""
    in_a_row: int = 0
    writes: int = 0


@dataclass
class Verdict:
    """What the device has noted and the host has not looked at so far."""

    first: Tensor | None = None
    """The first step that was bad, on the device; 0 while there is none."""
    told: list[Any] = field(default_factory=list)
    buffers: list[tuple[Tensor, Tensor]] | None = None

    def protect(self, optimizer: Any, bad: Tensor, step: int) -> None:
        """Have a fused optimizer leave its weights alone from the first bad step on."""
        if self.first is None:
            self.first = torch.zeros((), device=bad.device, dtype=torch.int64)
        first = self.first.to(bad.device, non_blocking=True)
        is_new = (first == 0) & (bad > 0)
        self.first = torch.where(is_new, torch.full_like(first, step), first)
        optimizer.found_inf = (self.first > 0).float()
        if all(each is not optimizer for each in self.told):
            self.told.append(optimizer)

    def copy(self, objects: Iterable[Any]) -> None:
        """Copy the modules' buffers, unless something bad may be in them."""
        if self.buffers is None:
            self.buffers = [(b, b.detach().clone()) for b in buffers_in_training(objects)]
        for buffer, copy in self.buffers:
            if self.first is None:
                copy.copy_(buffer)
            else:  # once the device has noted something, the copy stays as it is
                is_bad = self.first.to(copy.device, non_blocking=True) > 0
                copy.copy_(torch.where(is_bad, copy, buffer))

    def put_buffers_back(self) -> None:
        """Make the buffers what they were before the step that is discarded."""
        for buffer, copy in self.buffers or []:
            buffer.copy_(copy)

    def release(self) -> None:
        """Tell the optimizers nothing any more."""
        for optimizer in self.told:
            vars(optimizer).pop("found_inf", None)
        self.told.clear()


def _is_fused(optimizer: Optimizer) -> bool:
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def _says(step: int) -> str:
    return f"step {step} was not finite"


def _teach(state: State[Any, Any], step: int, times: int) -> str:
    again = f" ({times} times in a row)" if times > 1 else ""
    return (
        f"the gradients or the loss of step {step} are not finite{again}; the run is in iteration "
        f"{state.iteration} and its weights are those of before that step. Look at the batch in "
        "state.batch, at the learning rate and at the gradient norm (GradNorm), or carry on from "
        "the last checkpoint"
    )

"""Steps with NaN or infinite gradients are discarded before they reach the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...engine import Engine, Events, Stage, State, ranks
from ...engine.modules import Buffers, in_training, is_spread, moved
from ...engine.state import as_float
from ...engine.update import are_alike, non_finite, norm_read_by_all, ready_gradients

POLICIES = ("raise", "stop", "skip", "retry")


@dataclass(frozen=True, eq=False)
class NonFiniteGuard:
    """Keep NaN and infinity out of the weights: no step is made with such gradients or such a loss.

    A window is judged on all ranks together, when its gradients are complete and before other
    handlers see them. With every policy, weights and optimizer stay as they were before the bad
    step, and the logs show the NaN of the metric.

    On several ranks:

    - Where `DistributedDataParallel` averages gradients, the averages decide. They are the same on
      all ranks, and what is not finite on one rank makes them so, its loss included, as a loss that
      is not finite has such gradients. Nothing is sent.
    - Other models, such as those that `fully_shard` splits, cost one message of 4 bytes a window,
      or none beside handlers that read the norm, if this guard is attached before them; with
      `late=True` one in `every` windows.

    Args:
        policy: `"raise"` ends the run with `FloatingPointError`, so that the run is not taken for
            finished; `"stop"` ends it for good, and handlers of its end are called. `"skip"` and
            `"retry"` discard the window and make the step with the next batches; `"retry"` raises
            the error after `limit` discarded windows in a row, by default 10.
        limit: The largest number of windows in a row that `"skip"` or `"retry"` may discard.
        every: The number of windows from one look at the device to the next, with `"raise"` or
            `"stop"` and a fused optimizer (`fused=True`), which is told on the device to leave the
            weights alone. With other policies or optimizers each window is looked at.
        metric: A loss among the metrics that is judged together with the gradients; None to judge
            the gradients only.
        late: True to let bad steps reach the weights, but no checkpoint: each rank notes them on
            its device, and the ranks look at these notes together in every so many windows, before
            each save and at the end. So no step waits for the device, or for other ranks. It is
            for `"raise"`, after which the script goes on from the last checkpoint.

    >>> NonFiniteGuard("retry", limit=5).limit
    5
    """

    shares_norm: ClassVar[bool] = True
    policy: str = "raise"
    _: KW_ONLY
    limit: int | None = None
    every: int = 50
    metric: str | None = "loss"
    late: bool = False

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(
                f"NonFiniteGuard({self.policy!r}): needs one of {', '.join(map(repr, POLICIES))}"
            )
        if self.limit is not None and (self.limit < 1 or self.policy in ("raise", "stop")):
            raise ValueError(
                f"NonFiniteGuard({self.policy!r}, limit={self.limit!r}): needs a number from 1, "
                "and the policy 'skip' or 'retry'"
            )
        if self.late and self.policy != "raise":
            raise ValueError(
                f"NonFiniteGuard({self.policy!r}, late=True): needs the policy 'raise', since "
                "the weights are not finite after a bad step that is found late"
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
        """Skip the step if its gradients or its loss are not finite."""
        verdict = state.recall(self, Verdict, saved=False)
        judged = state.recall(self, JudgedWindows)
        is_fused = getattr(state.optimizer, "_step_supports_amp_scaling", False)
        on_device = self.late or (self.policy in ("raise", "stop") and is_fused)
        if not on_device and self._is_surely_good(state, judged):
            judged.in_a_row = 0
            return
        bad = self._is_bad(state, judged, verdict)
        if on_device:
            judged.count += 1
            # Where each optimizer has a clock of its own, `state.step` may not change.
            verdict.note(bad, max(state.step + 1, judged.count))
            if not self.late:
                verdict.protect(state.optimizer)
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
            state.stop(_reason(state.step + 1))
        elif self.policy == "raise" or (most is not None and judged.in_a_row > most):
            verdict.put_buffers_back()
            whose = _whose(verdict.own_loss)
            raise FloatingPointError(_teach(state, state.step + 1, judged.in_a_row, whose))

    def look(self, state: State[Any, Any]) -> None:
        """Raise or stop if the device has noted a bad step since the last look."""
        verdict = state.recall(self, Verdict, saved=False)
        if verdict.first is None or not (step := self._first_of_all(int(verdict.first))):
            return
        if self.late:
            raise FloatingPointError(_teach_late(state, step, _whose(verdict.own_first)))
        verdict.put_buffers_back()
        if self.policy == "raise":
            raise FloatingPointError(_teach(state, step, 1, _whose(verdict.own_first)))
        state.stop(_reason(step))

    def keep_buffers(self, state: State[Any, Any]) -> None:
        """Copy buffers, such as running means, that a forward pass over bad data would spoil."""
        if not self.late and not state.step_under_way.windows and state.is_running:  # between steps
            state.recall(self, Verdict, saved=False).copy(state.engine.objects.values())

    def put_buffers_back(self, state: State[Any, Any]) -> None:
        """Put buffers back to before the discarded step, which a scaler may have discarded."""
        state.recall(self, Verdict, saved=False).put_buffers_back()

    def let_go(self, state: State[Any, Any]) -> None:
        """Check the last steps, and release the optimizers."""
        try:
            if state.is_interrupted and state.error is None:  # no COMPLETED is fired
                self.look(state)
        finally:
            state.recall(self, Verdict, saved=False).release()

    def _is_surely_good(self, state: State[Any, Any], judged: JudgedWindows) -> bool:
        """True if one number shows that all values are finite: the norm that clipping needs too.

        The host reads it once. It may be infinite for large values that are finite, so False says
        nothing.
        """
        gradients = ready_gradients(state, None, "NonFiniteGuard")
        new = state.metrics.since(judged.writes)
        if gradients is None or not gradients.tensors:
            return False
        if not are_alike(state) and all(map(is_spread, gradients.tensors)):
            kind = norm_read_by_all(state)
            if kind not in (1.0, 2.0, math.inf):  # others, such as the 0-norm, hide NaN
                return False
            place = gradients.tensors[0].device
            own = self._own_loss(new, place)
            bad = torch.zeros((), device=place) if own is None else own.float()
            is_good = not bool(gradients.total(bad, kind, judged=True))
        elif not gradients.is_plain or not are_alike(state):
            return False
        else:
            found = gradients.norm()
            if self.metric in new and not ranks.is_distributed():
                value = new[self.metric]
                value = as_float(value) if isinstance(value, int) else value
                place = found.device  # the host has not to wait for a number that is elsewhere
                is_here = isinstance(value, Tensor) and value.ndim == 0 and value.device == place
                if not (is_here or isinstance(value, float)):
                    return False
                found = found + value
            is_good = math.isfinite(found)
        if is_good:
            judged.writes = state.metrics.writes
        return is_good

    def _is_bad(self, state: State[Any, Any], judged: JudgedWindows, verdict: Verdict) -> Tensor:
        """At least 1.0 if a value is not finite, on any rank unless `late`; without a wait."""
        gradients = ready_gradients(state, None, "NonFiniteGuard")
        assert gradients is not None
        bad = non_finite(gradients.tensors)
        new = state.metrics.since(judged.writes)
        judged.writes = state.metrics.writes
        is_sent = not are_alike(state)
        verdict.own_loss = self._own_loss(new, bad.device)
        # Where nothing is sent, no rank may judge by a value of its own.
        if is_sent or self.late or not ranks.is_distributed():
            bad = bad if verdict.own_loss is None else bad + verdict.own_loss
        if not is_sent or self.late:
            return bad
        return gradients.total(bad, norm_read_by_all(state))

    def _own_loss(self, new: Mapping[str, Any], place: torch.device) -> Tensor | None:
        """Whether the loss of this rank is not finite, on a device; None if it is not new."""
        if self.metric is None or self.metric not in new:
            return None
        value = new[self.metric]
        value = as_float(value) if isinstance(value, int) else value
        loss = torch.as_tensor(value).detach()
        return moved((loss * 0).ne(0).any(), place)

    def _first_of_all(self, step: int) -> int:
        """The first bad step of any rank, given this rank's first bad step; 0 means none."""
        if not self.late or not ranks.is_distributed():
            return step
        most = ranks.largest(torch.tensor(-step if step else -(2**62)))
        return 0 if int(most) == -(2**62) else -int(most)


@dataclass
class JudgedWindows:
    """The number of judged windows, and of windows that were discarded in a row."""

    count: int = 0
    """Windows judged on the device."""
    in_a_row: int = 0
    writes: int = 0
    """The last write of a metric that was judged."""


@dataclass
class Verdict:
    """The results on the device that the host has not read yet."""

    first: Tensor | None = None
    """The number of the first bad step, on the device; 0 if there is none."""
    own_loss: Tensor | None = None
    """Whether the loss of this rank in the last judged step was not finite, on the device."""
    own_first: Tensor | None = None
    """The same flag for the first bad step; set only in runs of several ranks."""
    protected: list[Any] = field(default_factory=list)
    buffers: Buffers | None = None

    def note(self, bad: Tensor, step: int) -> None:
        """Note the number of the first bad step, on the device."""
        if self.first is None:
            self.first = torch.zeros((), device=bad.device, dtype=torch.int64)
        first = moved(self.first, bad.device)
        is_new = (first == 0) & (bad > 0)
        self.first = torch.where(is_new, torch.full_like(first, step), first)
        if self.own_loss is not None and ranks.is_distributed():
            before = torch.zeros_like(is_new) if self.own_first is None else self.own_first
            self.own_first = before | (is_new & self.own_loss)

    def protect(self, optimizer: Any) -> None:
        """Tell a fused optimizer to leave its weights alone from the first bad step on."""
        if self.first is not None:
            optimizer.found_inf = (self.first > 0).float()
        if all(each is not optimizer for each in self.protected):
            self.protected.append(optimizer)

    def copy(self, objects: Iterable[Any]) -> None:
        """Copy the modules' buffers, unless a bad step may have changed them."""
        if self.buffers is None:
            self.buffers = Buffers(in_training(objects))
        else:
            self.buffers.keep(None if self.first is None else self.first > 0)

    def put_buffers_back(self) -> None:
        """Set the buffers back to before the discarded step."""
        if self.buffers is not None:
            self.buffers.put_back()

    def release(self) -> None:
        """Let the optimizers change their weights again."""
        for optimizer in self.protected:
            vars(optimizer).pop("found_inf", None)
        self.protected.clear()


def _reason(step: int) -> str:
    return f"step {step} was not finite"


def _whose(own: Tensor | None) -> str:
    """The ranks whose own loss was not finite, as text; all ranks have to call this."""
    found = ranks.gathered(own is not None and bool(own))
    who = [str(number) for number, bad in enumerate(found) if bad]
    if len(found) == 1 or not who:
        return ""
    return f" (the loss of rank{'s' * (len(who) > 1)} {', '.join(who[:9])})"


def _teach_late(state: State[Any, Any], step: int, whose: str) -> str:
    return (
        f"the gradients or the loss of step {step} were not finite on at least one rank{whose}; "
        f"the run is in iteration {state.iteration}, and its weights may be spoilt, as "
        "NonFiniteGuard(late=True) allows. Start the script again: it goes on from the last "
        "checkpoint, which is from before that was found; or leave late=True out"
    )


def _teach(state: State[Any, Any], step: int, times: int, whose: str) -> str:
    again = f" ({times} times in a row)" if times > 1 else ""
    return (
        f"the gradients or the loss of step {step} are not finite{again}{whose}; the run is in "
        f"iteration {state.iteration} and its weights are as before that step. Look at the batch "
        "in state.batch, at the learning rate and at the gradient norm (GradNorm), or carry on "
        "from the last checkpoint"
    )

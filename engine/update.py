"""The training half of a step: backward, accumulate, normalise, step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from . import ranks
from .events import EventEnum, Events
from .state import State

if TYPE_CHECKING:
    from .engine import Engine

# Looking a member up in its class is a Python function on 3.11; a global is not.
GRADIENTS_READY = Events.GRADIENTS_READY


class Update:
    """Turns losses into optimizer steps: `update(state, loss)` after each forward pass.

    The gradient of a step is the exact mean over what its accumulation window held, also when
    the window is a short one at the end of an epoch. In this order: backward, unscale, normalise,
    non-finite check (with a scaler), `GRADIENTS_READY`, optimizer step, `STEP_COMPLETED`, zero.
    A step that the scaler skips fires neither event and does not count.

    >>> weight = torch.nn.Parameter(torch.tensor(1.0))
    >>> update = Update(torch.optim.SGD([weight], lr=1.0), accumulate=2)
    >>> state = State(epoch_length=2)
    >>> for factor in (1.0, 3.0):
    ...     state.iteration += 1
    ...     update(state, factor * weight)
    >>> weight.item(), state.step
    (-1.0, 1)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        accumulate: int = 1,
        scaler: torch.amp.GradScaler | None = None,
        event: EventEnum = Events.STEP_COMPLETED,
    ) -> None:
        """Prepare updates by `optimizer`.

        Args:
            optimizer: Its parameters are updated.
            accumulate: Micro-batches of an accumulation window.
            scaler: Scales losses for float16.
            event: Announced after each step. Where several optimizers take turns, give each but
                the main one an event of its own: it is the clock of that optimizer's steps.

        Raises:
            TypeError: `optimizer` is no torch optimizer.
            ValueError: `accumulate` is no number of micro-batches.
        """
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"Update got {optimizer!r}; it needs a torch.optim.Optimizer")
        if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
            raise ValueError(f"accumulate={accumulate!r}: needs a number of micro-batches, from 1")
        self.optimizer = optimizer
        self.accumulate = accumulate
        self.scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self.event = event
        plain = getattr(optimizer.zero_grad, "__func__", None) is Optimizer.zero_grad
        self._clear = partial(clear_gradients, optimizer) if plain else optimizer.zero_grad

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Be known to the engine: schedules over a whole run ask it how its steps are made."""

    def __call__(
        self, state: State[Any, Any], loss: Tensor, weight: Tensor | float | None = None
    ) -> None:
        """Take one micro-batch; step if it is the last one of its window.

        Args:
            state: The run.
            loss: A scalar. Without `weight` it is a mean, and each micro-batch counts once.
            weight: How many targets the loss is a sum over; the gradient is then divided by all
                targets of the window, on all ranks.

        Raises:
            RuntimeError: This is an evaluation.
            ValueError: Some micro-batches of a window have a weight and some have none.
        """
        if not state.training:
            raise RuntimeError(
                "an update was asked for in an evaluation; write `if state.training:` before it, "
                "or give the engine a step of its own for that: Engine(..., evaluate=...)"
            )
        window = state.windows.get(id(self))
        if window is None:
            self._clear()  # what another backward pass or a failed run has left
            if weight is None and (self.accumulate == 1 or state.is_last_batch):
                (loss if self.scaler is None else self.scaler.scale(loss)).backward()
                self.step(state)
                return
            window = state.windows[id(self)] = Window(self)
        try:
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
            window.add(weight)
        except BaseException:  # half a backward pass spoils the window: the next one begins anew
            del state.windows[id(self)]
            raise
        if window.count >= self.accumulate or state.is_last_batch:
            window.close(state)

    def step(self, state: State[Any, Any], factor: Tensor | float | None = None) -> None:
        """Step with the gradients there are, times `factor`."""
        optimizer, scaler = self.optimizer, self.scaler
        state.optimizer = optimizer
        if scaler is not None:
            scaler.unscale_(optimizer)
        if factor is not None:
            groups = optimizer.param_groups
            gradients = [p.grad for group in groups for p in group["params"] if p.grad is not None]
            # torch's optimizers use it too; there is no other way to scale them all at once.
            if gradients:
                torch._foreach_mul_(gradients, factor)  # pyright: ignore
        if scaler is None:
            state.fire(GRADIENTS_READY)
            optimizer.step()
            state.fire(self.event)
        else:
            self._step_scaled(state, scaler)
        self._clear()

    def rehearse(self, state: State[Any, Any]) -> None:
        """Fire the events that a call would fire, without a loss."""
        window = state.windows.setdefault(id(self), Window(self))
        window.add(None)
        if window.count == self.accumulate or state.is_last_batch:
            del state.windows[id(self)]
            state.fire(GRADIENTS_READY)
            state.fire(self.event)

    def _step_scaled(self, state: State[Any, Any], scaler: torch.amp.GradScaler) -> None:
        # The scaler itself looks no sooner than in step(), when clipping has to be over.
        found = scaler._found_inf_per_device(self.optimizer).values()  # pyright: ignore
        overflow = sum(infinite.item() for infinite in found)
        if not overflow:
            state.fire(GRADIENTS_READY)
        scaler.step(self.optimizer)  # does nothing after an overflow
        scaler.update()
        if not overflow:
            state.fire(self.event)


@dataclass(slots=True, eq=False)
class Window:
    """An open accumulation window: how many micro-batches it holds, and of what weight."""

    update: Update
    count: int = 0
    weight: Tensor | float | None = None

    def add(self, weight: Tensor | float | None) -> None:
        """Count one micro-batch."""
        if self.count and (weight is None) != (self.weight is None):
            raise ValueError(
                "some micro-batches of this accumulation window have a weight= and some have none; "
                "give all of them the number of their targets, or none of them"
            )
        self.count += 1
        if weight is not None:
            self.weight = weight if self.weight is None else self.weight + weight

    def close(self, state: State[Any, Any]) -> None:
        """Step with the mean over what the window holds."""
        del state.windows[id(self.update)]
        self.update.step(state, self._factor())

    def _factor(self) -> Tensor | float | None:
        if self.weight is None:
            return None if self.count == 1 else 1 / self.count
        # Gradients are averaged over ranks, so that their sum is this many times as large.
        targets = ranks.total(self.weight)
        factor = ranks.world_size() / (targets + (targets == 0))
        return factor.reshape(()) if isinstance(factor, Tensor) else factor


def clear_gradients(optimizer: Optimizer) -> None:
    """Do what `optimizer.zero_grad()` does, without what that costs: several times as much."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None

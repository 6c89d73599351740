"""The training half of a step: backward, accumulate, normalise, step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from .. import ranks
from ..compiling import Compile, CompiledStep, options_of
from ..events import EventEnum, Events, Stage
from ..explain import warn
from ..modules import are_spread, optimizers_in, parameters_of
from ..state import State
from .gradients import Gradients, backward, clear, has_overflowed, step_by
from .micro_batch import MicroBatch
from .optimizers import CompiledSteps, Given, Optimizers, one_of
from .sync import Sync, are_alike, is_wrapped
from .window import Window, by_share, check_loss_weights, needs_closure, point_of, takes_closure

if TYPE_CHECKING:
    from torch.amp import GradScaler

    from ..engine import Engine
    from .window import Closure

# Looking a member up in its class is a Python function on 3.11; a global is not.
BACKWARD_COMPLETED = Events.BACKWARD_COMPLETED
GRADIENTS_READY = Events.GRADIENTS_READY
STEP_SKIPPED = Events.STEP_SKIPPED


class NoTraining(RuntimeError):  # noqa: N818  # reads as what it is
    """An update in an evaluation."""


class Update:
    """Turns losses into optimizer steps: `update(state, loss)` after each forward pass.

    The gradient of a step is the exact mean over its accumulation window, also if the window is
    short at the end of an epoch. In this order: backward, average over ranks,
    unscale, normalise, overflow check (with a scaler), `BACKWARD_COMPLETED`, `GRADIENTS_READY`,
    optimizer step, `STEP_COMPLETED`, zero. A step that the scaler or a handler skips fires
    `STEP_SKIPPED` instead, and does not count.

    >>> import torch
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
        optimizer: Given,
        *,
        model: Module | None = None,
        accumulate: int = 1,
        scaler: GradScaler | None = None,
        min_scale: float = 1e-4,
        sync: str = "last",
        event: EventEnum = Events.STEP_COMPLETED,
        compile: Compile = False,
    ) -> None:
        """Prepare updates by `optimizer`.

        Args:
            optimizer: Its parameters are updated. One that accelerate or Fabric has wrapped is
                taken out of the wrapper. Several for one loss are a list or a dict of names, such
                as `{"muon": muon, "adamw": adamw}`: one backward pass, one norm and one step
                for all of their parameters; `state.optimizer.param_groups` has them all.
            model: The wrapper made by `DistributedDataParallel`, or the model that `fully_shard`
                has split, so that ranks average gradients once a window; see `sync` and
                `micro_batch`.
            accumulate: Micro-batches of an accumulation window.
            scaler: Scales losses for float16.
            min_scale: The run fails when overflows have brought the scale below this.
            sync: When `model` averages gradients over ranks: in the backward pass of a window's
                `"last"` micro-batch, or when it is about to step: `"close"`, which allows each
                rank to skip micro-batches of its own (`loss=None`). A step of your own without
                `micro_batch` averages in each backward pass.
            event: Announced after each step. Where several optimizers take turns, give each but
                the main one an event of its own: it is the clock of that optimizer's steps.
            compile: True to compile the optimizer's step, and clipping before it, by
                `torch.compile`; or the arguments for it, `{"mode": "max-autotune"}`.

        Raises:
            TypeError: `optimizer` is not a torch optimizer.
            ValueError: `accumulate` is not a number of micro-batches, two optimizers update the
                same parameter, or two arguments do not go together.
        """
        optimizer = one_of(optimizer)
        if type(accumulate) is not int or accumulate < 1:
            raise ValueError(f"accumulate={accumulate!r}: needs a number of micro-batches, from 1")
        self.optimizer = optimizer
        self.model = model
        self.accumulate = accumulate
        self.scaler: GradScaler | None = (
            scaler if scaler is not None and scaler.is_enabled() else None
        )
        self.min_scale = min_scale
        self.sync: Sync | None = Sync.of(model, sync)
        self.event = event
        self.needs_closure: bool = needs_closure(optimizer)
        self.averages_at_close: bool = self.sync is not None and self.sync.at_close
        if self.needs_closure and are_spread(parameters_of(optimizer)):
            raise ValueError(
                f"{type(optimizer).__name__} searches along all parameters as one vector, and "
                "those of a sharded model are on several ranks; use another optimizer, such as "
                "AdamW, or DistributedDataParallel"
            )
        options = None if compile is False else options_of(compile, "Update")
        self.compiled: CompiledStep | None = None
        if options is not None:
            several = isinstance(optimizer, Optimizers)
            kind = CompiledSteps if several else CompiledStep
            self.compiled = kind(optimizer, options)
        if self.needs_closure:
            takes_closure(self)
        self._has_told = False
        self._gradients = Gradients(optimizer, self.compiled)
        self._is_direct = not (self.averages_at_close or self.needs_closure)
        self._met_at = 0
        """The iteration of the first micro-batch, until another one follows."""
        ways = {getattr(each.zero_grad, "__func__", None) for each in optimizers_in(optimizer)}
        is_plain = ways == {Optimizer.zero_grad}
        self._clear = partial(clear, optimizer) if is_plain else optimizer.zero_grad

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Begin runs of a sharded model; schedules and checks look for updates among handlers."""
        if self.sync is not None and not self.sync.can_average:
            engine.on(Events.STARTED, stage=Stage.MEASURE)(self.begin)

    def begin(self, state: State[Any, Any]) -> None:
        """Let the model forget a run that failed in the middle of a window."""
        if self.sync is not None:
            self.sync.begin()

    def __call__(
        self,
        state: State[Any, Any],
        loss: Tensor | None,
        *,
        weight: Tensor | float | None = None,
        closure: Closure | None = None,
        retain_graph: bool = False,
    ) -> None:
        """Take one micro-batch; step if it is the last one of its window.

        Args:
            state: The run.
            loss: A scalar. Without `weight` it is a mean, and each micro-batch counts once. None
                skips the micro-batch: it takes its place in the window, and counts for nothing.
            weight: How many targets the loss is a sum over; the gradient is then divided by all
                targets of the window, on all ranks. All ranks give one: a number each,
                or a tensor each, of any type, on the model's device.
            closure: Computes the same loss again and returns it, for optimizers that need it,
                such as LBFGS and SAM. It makes no backward pass.
            retain_graph: True to keep the graph of the loss for a further backward pass.

        Raises:
            RuntimeError: This is an evaluation; or one rank of several skips a micro-batch.
            TypeError: The optimizer needs a closure and none is given.
            ValueError: Some micro-batches of a window, or some ranks, have a weight and some have
                none; or the optimizer cannot use the closure.
        """
        if not state.training:
            raise NoTraining(
                "an update was asked for in an evaluation; write `if state.training:` before it, "
                "or give the engine a step of its own for that: Engine(..., evaluate=...)"
            )
        if loss is None and not self.averages_at_close and ranks.is_distributed():
            raise RuntimeError(
                "a micro-batch without a loss: the other ranks may have one, and would wait for "
                "this one's gradients; pass model= and sync='close' to Update, or give a loss of "
                "zero"
            )
        if loss is not None and self.needs_closure and closure is None:
            raise TypeError(
                f"{type(self.optimizer).__name__} evaluates the loss several times a step: pass "
                "update(state, loss, closure=...), a function that computes the loss again"
            )
        if closure is not None and not takes_closure(self):
            closure = None
        step = state.step_under_way
        if step.check is not None:
            step.check.enter(self, loss, is_mean=weight is None)
        if self not in step.met:
            self.meet(state, weight, has_loss=loss is not None)
            self._met_at = state.iteration
        elif self._met_at:
            self._warn_of_several(state)
        if state.share != 1:  # ranks hold unlike numbers of samples
            loss, weight, closure = by_share(state.share, loss, weight, closure)
        window = step.windows.get(self)
        if (
            loss is not None
            and weight is None
            and (self.accumulate == 1 or state.is_last_batch)
            and self._is_direct
            and window is None
            and closure is None
        ):
            self._clear()  # gradients that another backward pass or a failed run has left
            backward(loss if self.scaler is None else self.scaler.scale(loss), retain_graph)
            self._step(state)
            return
        window = window or self.open(state)
        window.add(loss, weight, closure)
        is_whole = window.calls >= self.accumulate or state.is_last_batch
        is_whole = is_whole and not window.is_held
        if is_whole and window.weight is not None and not self.averages_at_close:
            window.count_targets(window.weight)  # while the backward pass goes on
        if loss is not None:
            self.backward(state, loss, retain_graph)
        if is_whole:
            self.close(state)

    def micro_batch(self, state: State[Any, Any]) -> MicroBatch:
        """The passes of one micro-batch as a context: for a model on several ranks, or CUDA graphs.

        Ranks then average gradients once a window: `DistributedDataParallel` decides in the forward
        pass, FSDP in the backward pass. Without this context each backward pass averages, which is
        right too, and slower. With `compile={"mode": "reduce-overhead"}` the context says when a
        step begins: torch then writes over what the step before has made.

        Args:
            state: The run.

        ```python
        with update.micro_batch(state):
            loss = loss_fn(model(inputs), targets)
            update(state, loss)
        ```
        """
        return MicroBatch(self, state)

    def backward(self, state: State[Any, Any], loss: Tensor, retain_graph: bool = False) -> None:
        """Add gradients to the window; for a micro-batch in parts, use `MicroBatch`."""
        window = state.step_under_way.windows.get(self) or self.open(state)
        try:
            window.backward(loss, retain_graph)
        except BaseException:  # half a backward pass spoils the window: the next one begins anew
            del state.step_under_way.windows[self]
            raise
        if (check := state.step_under_way.check) is not None:
            check.leave(self)

    def close(self, state: State[Any, Any]) -> None:
        """Close the window: step with the mean of its gradients, if it has any."""
        # Before the step: while a window is open, a check takes each step for that of other code.
        window: Window = state.step_under_way.windows.pop(self)
        at_close, device = self.averages_at_close, None
        if not (ranks.any_rank(window.count > 0) if at_close else window.count):
            return
        if self.sync is not None and (at_close or window.needs_reduce):
            self.sync.average()
        if at_close:
            device = parameters_of(self.optimizer)[0].device
        factor, closure = window.factor(device), None
        if window.closures:
            closure = partial(self._closure, state, window, factor)
        self._step(state, factor, closure)

    def rehearse(self, state: State[Any, Any]) -> None:
        """Fire the events that a call would fire, without a loss."""
        window = state.step_under_way.windows.setdefault(self, Window())
        window.calls += 1
        if window.calls == self.accumulate or state.is_last_batch:
            del state.step_under_way.windows[self]
            for event in (BACKWARD_COMPLETED, GRADIENTS_READY, self.event):
                state.fire(event)

    def open(self, state: State[Any, Any]) -> Window:
        """Open a window; clear gradients that another backward pass or a failed run has left."""
        step = state.step_under_way
        if (begun := step.windows.get(self)) and begun.count and not begun.is_held:
            raise RuntimeError(
                f"update.open() would lose the gradients of {begun.count} micro-batches of this "
                "window, as accumulate= is above 1. Call it for the first one: if update not in "
                "state.step_under_way.windows: update.open(state)"
            )
        if step.check is not None:
            step.check.enter(self)
        self._clear()
        window = step.windows[self] = Window(self.scaler)
        return window

    def meet(
        self, state: State[Any, Any], weight: Tensor | float | None, *, has_loss: bool
    ) -> None:
        """In a run's first micro-batch: be counted, and check how ranks average gradients."""
        if self in state.step_under_way.met:
            return
        state.step_under_way.met.add(self)
        if ranks.is_distributed():
            known = state.engine.objects.values() if state.is_running else ()
            is_averaged = self.sync is not None or is_wrapped(parameters_of(self.optimizer), known)
            if is_averaged:
                check_loss_weights(weight, has_loss=has_loss)
            if is_averaged and self.model is None and self.accumulate > 1:
                warn(
                    "this Update was not told of the DistributedDataParallel or fully_shard around "
                    f"its parameters, which averages gradients {self.accumulate} times a step; "
                    "once is enough: Update(optimizer, model=model, ...), with the forward pass "
                    "and the update in `with update.micro_batch(state):`"
                )

    def _warn_of_several(self, state: State[Any, Any]) -> None:
        """Warn of an iteration with several micro-batches, if a window may be cut at each."""
        is_again, self._met_at = self._met_at == state.iteration, 0
        has_last = state.epoch_length is not None or state.max_iterations is not None
        # A window is this run's own; the iteration may be that of a run that failed.
        window = state.step_under_way.windows.get(self)
        if is_again and has_last and window is not None and not window.is_held:
            warn(
                f"an iteration calls Update(accumulate={self.accumulate}) several times, and in "
                "the last batch of an epoch each call is a step, since no other batch follows. "
                "Leave accumulate= out, and let the parts of a step be one micro-batch: `with "
                "update.micro_batch(state) as micro:`, in it micro.backward(loss) for each part, "
                "and then micro.count(loss)"
            )

    def _step(
        self,
        state: State[Any, Any],
        factor: Tensor | float | None = None,
        closure: Callable[[], Closure] | None = None,
    ) -> None:
        optimizer, scaler, gradients = self.optimizer, self.scaler, self._gradients
        step = state.step_under_way
        step.gradients, step.is_skipped = gradients, False
        gradients.norms.clear()  # a failed step may have left some
        if scaler is not None:
            scaler.unscale_(optimizer)
        if factor is not None:
            gradients.look().scale(factor)
        overflow = False
        if scaler is not None:
            overflow = has_overflowed(scaler, gradients, alike=are_alike(state))
        if not overflow:
            state.fire(BACKWARD_COMPLETED)
        if overflow or step.is_skipped:
            self._skip(state, overflow)
            return
        step.is_skipped = None
        state.fire(GRADIENTS_READY)
        if self.compiled is not None:
            self.compiled.step()
        elif closure is None:
            step_by(optimizer)
        else:
            optimizer.step(closure())  # type: ignore[arg-type]  # torch means float or Tensor
        if scaler is not None:
            scaler.update()
        state.fire(self.event)
        self._clear()
        gradients.tensors = ()  # their memory is free for the next forward pass
        if step.check is not None:
            step.check.leave(self)

    def _closure(
        self, state: State[Any, Any], window: Window, factor: Tensor | float | None
    ) -> Closure:
        window.point = point_of(parameters_of(self.optimizer))
        return partial(window.evaluate, self._gradients, factor, partial(self._begin_again, state))

    def _begin_again(self, state: State[Any, Any]) -> None:
        """Clear the gradients, since the optimizer computes them again."""
        found: Any = state.engine.signal(GRADIENTS_READY).receivers.values()
        acting = [each for each in found if getattr(each, "stage", None) is Stage.ACT]
        if not self._has_told and (names := [each.handler for each in acting if each.handler]):
            self._has_told = True
            warn(
                f"{', '.join(names)} changes the gradients before the step of "
                f"{type(self.optimizer).__name__}, and not those that it computes in the step, by "
                "closure=; leave it out"
            )
        self._clear()

    def _skip(self, state: State[Any, Any], overflow: bool) -> None:
        state.step_under_way.is_skipped, state.step_under_way.skipped_at = None, state.iteration
        self._clear()
        self._gradients.tensors = ()
        if (check := state.step_under_way.check) is not None:
            check.leave(self)
        if self.scaler is not None:
            self.scaler.update()
        state.fire(STEP_SKIPPED)
        state.metrics["skipped_steps"] = state.counts[STEP_SKIPPED]
        if overflow and self.scaler is not None and self.scaler.get_scale() < self.min_scale:
            raise FloatingPointError(
                f"the loss scale has fallen to {self.scaler.get_scale():g} after step {state.step},"
                f" below min_scale={self.min_scale:g}: gradients overflow whatever the scale. Look "
                "for NaN in the data and in the loss, lower the learning rate, or train in bf16"
            )

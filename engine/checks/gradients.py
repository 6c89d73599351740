"""Gradients and losses that code other than an `Update` changes, such as remains of a loop."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..changes import address_of, reached
from ..events import Events
from ..explain import warn
from ..modules import optimizers_in, parameters_of
from ..signals import label
from .checked import After, Check, Checked, Moment, objects_by_place, unwatch_steps, watch_steps
from .losses import MOST, saved, warn_of_loss
from .parameters import warn_of_hidden

if TYPE_CHECKING:
    from ..update import Update

EARLY = 20
"""The number of iterations at a run's start in which gradients are checked."""
READ = (Events.BACKWARD_COMPLETED, Events.GRADIENTS_READY)
READY = After(Events.GRADIENTS_READY)
AFTER_ITERATION = After(Events.ITERATION_COMPLETED)
BETWEEN = AFTER_ITERATION, After(Events.EPOCH_STARTED), After(Events.EPOCH_COMPLETED)
"""When handlers may have left gradients."""
CLIPS, STEPS = {"clip_grad_norm_", "clip_grad_value_"}, {"backward", "step", "micro_batch"}
RELEASED = (
    "the backward pass itself changes the weights and drops their gradients (gradient release), so "
    "that this has no effect: {}. Leave it out, or make the optimizer without gradient release"
)
NO_GRADIENT = (
    "no weight of {} had a gradient in its first {} steps, so that none has changed: the loss does "
    "not depend on them. Look for .detach(), .data, torch.tensor(...) or argmax between the model "
    "and the loss, which requires_grad_() does not mend, and for zero_grad() behind the backward "
    "pass"
)
NO_RATE = (
    "the schedule of {} gives a learning rate of 0 for its first {} steps, so that no weight "
    "changes. Let it begin above 0, such as (epoch + 1) / 10 for epoch / 10, and write / for //"
)

Look = dict[int, tuple[Any, int]]
"""By the id of a parameter: its gradient and the gradient's version, which a write raises."""


def check_gradients(run: Checked) -> Check:
    """End a run that changes gradients outside its updates; in its first iterations."""
    check, last, has_looked = GradientCheck(run), run.state.iteration + EARLY, False
    moment: Moment = Events.STARTED
    try:
        while moment != AFTER_ITERATION or run.state.iteration < last:
            moment = yield Events.BACKWARD_COMPLETED, READY, Events.COMPLETED, *BETWEEN
            if moment is Events.COMPLETED:
                break
            if moment == READY:
                check.look_at_step()
                continue
            if moment is Events.BACKWARD_COMPLETED:
                check.look_at_weights()
                continue
            if moment == AFTER_ITERATION and not has_looked:
                has_looked = True
                warn_of_hidden(run)
            check.settle()
        check.warn_of_idle_steps()
    finally:
        check.close()


def check_clipping(run: Checked) -> None:
    """Warn of a function that clips gradients where no step of an update uses them any more."""
    found: list[Any] = [run.process]
    for event, signal in run.moments.signals.items() if run.updates else ():
        if event not in READ:
            found += signal.receivers.values()
    for each in found:
        function = getattr(each, "function", each)
        names = getattr(getattr(function, "__code__", None), "co_names", ())
        if not CLIPS.isdisjoint(names) and STEPS.isdisjoint(names):
            warn(
                f"{label(function)} clips gradients that no step uses: an Update clears them "
                "before its backward pass, and steps right after it. Write "
                "engine.add(ClipGradNorm(1.0)), or attach the function to Events.GRADIENTS_READY"
            )


class GradientCheck:
    """Compares gradients before the backward passes and steps of updates with those after the last.

    It accepts gradients from before the run, from the backward pass of another `Update`, from a
    handler between two iterations, and from a backward pass before another optimizer's step: a
    loop's `zero_grad()` drops them as an `Update` does.
    """

    def __init__(self, run: Checked) -> None:
        self._run, self._step = run, run.state.step_under_way
        self._inside: Update | None = None
        """The update that is working now; None between updates."""
        self._seen: dict[Update, Look] = {each: _look(each) for each in run.updates.values()}
        """By update: its latest look; an update that is not attached appears at its first step."""
        self._points: dict[Update, list[int]] = {}
        """By update: the versions of its weights before a backward pass; empty after a step."""
        self._thread = get_ident()
        self._met: set[int] = set()
        """The updates that had a loss."""
        self._watches = False
        self._steps = defaultdict[Any, Counter[str]](Counter)
        """By optimizer: its steps, and those that find no gradient or a rate of 0."""
        self._step.check = self

    def close(self) -> None:
        """Look no more."""
        self._step.check = None
        self._seen.clear()
        unwatch_steps(self._stepped)

    def enter(self, update: Update, loss: Any = None, *, is_mean: bool = False) -> None:
        """Refuse gradients of other code, before an update clears them, adds to them or steps.

        `loss` is that of a micro-batch; if it is a mean, the update divides by their number.
        """
        if loss is not None and id(update) not in self._met:
            self._met.add(id(update))
            if update.accumulate > 1 and is_mean:
                _check_loss(update, loss)
                _check_mean(self._run, update, loss)
            warn_of_loss(loss)
            _refuse_scaled(self._run, loss)
            if update.compiled is None and not self._watches:  # a hook would be compiled into it
                self._watches = True
                watch_steps(self._stepped)
        if self._points.get(update, [0]):  # at each backward pass, until the first step
            self._points[update] = [each._version for each in parameters_of(update.optimizer)]
        for each, look in self._seen.items():
            self._compare(each, look)
        if update not in self._step.windows:
            if self._step.windows:
                self._refuse_shared(update)
            self._seen.pop(update, None)  # its gradients are cleared, and must not live on here
        self._inside = update

    def leave(self, update: Update) -> None:
        """After a backward pass or a step of this update: refuse to add to another one's window."""
        self._inside = None
        for each, look in self._seen.items():
            if each is not update and each in self._step.windows and _changed(_look(each), look):
                raise RuntimeError(
                    "the backward pass of one Update has added gradients to the open accumulation "
                    "window of another one: its loss depends on the parameters of both. Cut the "
                    "loss off from the other ones: critic(generator(noise).detach())"
                )
        self._seen = {each: _look(each) for each in {**self._seen, update: {}}}

    def settle(self) -> None:
        """Accept gradients that handlers wrote between two iterations, unless a window is open."""
        for each in self._seen.keys() - self._step.windows.keys():
            self._seen[each] = _look(each)

    def look_at_weights(self) -> None:
        """Before the first step of an update: look whether its backward pass has made the step."""
        for update, before in self._points.items():
            if update.optimizer is not self._run.state.optimizer or not before:
                continue
            self._points[update] = []
            now = zip(parameters_of(update.optimizer), before, strict=False)
            own = [(each, each._version != version) for each, version in now if each.requires_grad]
            moved = [is_written for each, is_written in own if each.grad is None]
            is_hooked = any(each._post_accumulate_grad_hooks for each, _ in own)
            if any(moved) or (is_hooked and len(moved) == len(own)):
                self._tell_of_release(update)

    def look_at_step(self) -> None:
        """Before a step of an optimizer of torch's, which passes over weights without gradient."""
        optimizer: Any = self._run.state.optimizer
        if optimizer is None:  # the script fires the event
            return
        for each in optimizers_in(optimizer):
            if not type(each).step.__module__.startswith("torch.optim."):
                return
        count, has_gradient, has_rate = self._steps[optimizer], False, False
        for group in optimizer.param_groups:  # with no comprehensions, which would be calls
            rate = group["lr"]  # one that the script has set to 0 is meant
            has_rate |= (
                not isinstance(rate, float | int) or rate != 0 or not group.get("initial_lr")
            )
            for each in group["params"]:
                if each.requires_grad and each._post_accumulate_grad_hooks:
                    return
                has_gradient |= each.requires_grad and each.grad is not None
        count[""] += 1
        count[NO_GRADIENT] += not has_gradient
        count[NO_RATE] += not has_rate

    def warn_of_idle_steps(self) -> None:
        """Warn of an optimizer whose steps have changed nothing, unless there was only one."""
        names = {id(each): name for name, each in self._run.optimizers.items()}
        for optimizer, count in self._steps.items():
            for why in (NO_GRADIENT, NO_RATE):
                if count[""] == count[why] > 1:
                    warn(why.format(names.get(id(optimizer), "the optimizer"), count[why]))

    def _stepped(self, optimizer: Any) -> None:
        """Called after each step of any optimizer of the process, also of an update's."""
        if get_ident() != self._thread:
            return
        for update in self._seen.keys() & self._step.windows.keys():
            if any(each is optimizer for each in optimizers_in(update.optimizer)):
                if self._inside is update:
                    self._tell_of_release(update)
                raise RuntimeError(
                    "optimizer.step() was called by hand in an accumulation window of its Update, "
                    "which steps by itself after the last micro-batch: leave optimizer.step() out"
                )
        self.settle()

    def _tell_of_release(self, update: Update) -> None:
        if update.scaler is not None or update.accumulate > 1:
            raise RuntimeError(RELEASED.format("accumulate=, or the gradient scaler"))
        signals = self._run.moments.signals
        found = [each for event in READ for each in signals[event].subscriptions]
        if names := dict.fromkeys(each.handler for each in found if each.handler):
            warn(RELEASED.format(", ".join(names)))

    def _compare(self, update: Update, look: Look) -> None:
        now = _look(update)
        if update in self._step.windows:
            if any(look[key][0] is not None and now[key][0] is None for key in now.keys() & look):
                raise RuntimeError(
                    "the gradients of this accumulation window are gone: something called "
                    "zero_grad() after its first micro-batch. Leave zero_grad() out of the process "
                    "function; the Update clears the gradients after each step"
                )
            if _changed(now, look):
                raise RuntimeError(
                    "something else than update(state, loss) changed the gradients of an open "
                    "accumulation window. Leave zero_grad() and backward passes by hand out: "
                    "update(state, loss_a + loss_b). Clip or change gradients where they are "
                    "whole: add ClipGradNorm(1.0), or a function on Events.GRADIENTS_READY"
                )
        elif any(map(_has_values, _changed(now, look))):
            raise RuntimeError(
                "a backward pass by hand has left gradients for the optimizer of this Update, "
                "which drops them before its own. To train with both losses, write one "
                "update(state, loss_a + loss_b); to drop these gradients, write "
                "optimizer.zero_grad() before update(state, loss)"
            )

    def _refuse_shared(self, update: Update) -> None:
        """Refuse to clear gradients of another update's open window."""
        own = {*map(id, parameters_of(update.optimizer))}
        for other in self._step.windows:
            theirs = parameters_of(other.optimizer)
            if any(id(each) in own and each.grad is not None for each in theirs):
                raise RuntimeError(
                    "two Updates have the same parameters, and one begins a step in the open "
                    "accumulation window of the other, whose gradients it clears. Make one Update "
                    "for these parameters, outside of the process function"
                )


def _look(update: Update) -> Look:
    own = parameters_of(update.optimizer)
    return {id(e): (g := e.grad, 0 if g is None else g._version) for e in own}


def _changed(now: Look, look: Look) -> list[Any]:
    """The gradients that were replaced or written since the look."""
    both = [(*now[key], *look[key]) for key in now if key in look]
    return [g for g, n, old, number in both if g is not None and (g is not old or n != number)]


def _has_values(gradient: Any) -> bool:
    """False for a gradient of zeros, which `zero_grad(set_to_none=False)` leaves."""
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return bool((values != 0).any())


def _check_mean(run: Checked, update: Update, loss: Any) -> None:
    """Warn of a mean over some targets, of which other micro-batches have other numbers."""
    made: Any = getattr(loss, "grad_fn", None)
    is_ours = hasattr(getattr(run.process, "__self__", None), "loss_fn")  # which looks by itself
    if is_ours or not type(made).__name__.startswith("NllLoss") or made._saved_reduction != 1:
        return
    ignored, target = made._saved_ignore_index, saved(made, "target")
    ignored -= 2**64 if ignored >= 2**63 else 0
    if made._raw_saved_weight is not None and saved(made, "weight") is not None:
        over, count = "by the weights of their classes", "class_weights[target].sum()"
    elif target is not None and (target == ignored).any():
        over, count = f"that are not {ignored}", f"(target != {ignored}).sum()"
    else:
        return
    warn(
        f"the loss is a mean over the targets {over}, and each of the {update.accumulate} batches "
        "of accumulate= counts the same: the step is not that of one large batch. Say how much it "
        f"is over: count = {count}; update(state, loss * count, weight=count)"
    )


def _check_loss(update: Update, loss: Any) -> None:
    """Warn of a loss that the script divides as its update does, unless it is a sum."""
    made, number = getattr(loss, "grad_fn", None), update.accumulate
    if type(made).__name__ != "DivBackward0":
        return
    if (other := saved(made, "other")) is None:
        return
    is_number = str(other.dtype) in ("torch.int64", "torch.float64") and other.device.type == "cpu"
    if other.ndim or other.requires_grad or not is_number or other != number:
        return
    if not _is_sum(made, number):
        warn(
            f"the loss is divided by {number}, and this Update has accumulate={number}: it makes "
            f"the mean over the micro-batches of a window itself, so that gradients are {number} "
            f"times too small. Leave `/ {number}` out; where it is meant, write `* {1 / number:g}`"
        )


def _refuse_scaled(run: Checked, loss: Any) -> None:
    """Refuse a loss from `scaler.scale(loss)`: no update divides its gradients again."""
    if not (found := _multiplied(getattr(loss, "grad_fn", None))):
        return
    kind = sys.modules["torch"].amp.GradScaler
    things = objects_by_place(run.objects)
    things |= reached([run.process], lambda own: issubclass(own, kind))
    for name, each in things.items():
        scale = each._scale if isinstance(each, kind) else None
        # Only beside a scaler: to read a factor may compute a part of a checkpointed model.
        if scale is not None and any(
            address_of(e._saved_other) == address_of(scale) for e in found
        ):
            raise RuntimeError(
                f"the loss is multiplied by the scale of {name}, and nothing divides its gradients "
                "by it: write Update(optimizer, scaler=scaler), which does both, and leave "
                "scaler.scale(...) out: update(state, loss)"
            )


def _multiplied(made: Any) -> list[Any]:
    """The operations by which a loss, or a term of it, was multiplied by a constant last."""
    left, found = [made], list[Any]()
    for node in left:
        kind = type(node).__name__
        if kind in ("AddBackward0", "DivBackward0", "MulBackward0") and len(left) < MOST:
            left += (each for each, _ in node.next_functions)
            if kind == "MulBackward0" and node.next_functions[1][0] is None:
                found.append(node)
    return found


def _is_sum(division: Any, number: int) -> bool:
    """True if the divided value is a sum over samples, or a sum of `number` losses."""
    divided = division.next_functions[0][0]
    is_sum = type(divided).__name__.startswith("Sum")
    return is_sum or getattr(divided, "_saved_reduction", None) == 2 or _terms(divided) == number


def _terms(node: Any) -> int:
    """The number of losses that a chain of additions sums up."""
    if type(node).__name__ != "AddBackward0":
        return 1
    return sum(_terms(each) for each, _ in node.next_functions)

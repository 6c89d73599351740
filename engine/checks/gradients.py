"""Gradients and losses that code other than an `Update` changes, such as remains of a loop."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from .. import modules
from ..events import Events
from ..explain import warn
from ..state import State
from .checked import Checked, unwatch_steps, updated, watch_steps

if TYPE_CHECKING:
    from ..update import Update

EARLY = 20
"""The number of iterations at a run's start in which gradients are checked."""
EACH = 3
"""The same number for the second epoch, the fourth, the eighth and so on: a loss may begin late."""
SCALED = 256
"""A power of two from this number on is taken for the scale of a `GradScaler`."""
CLIPS = {"clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"}
READ = (Events.BACKWARD_COMPLETED, Events.GRADIENTS_READY)
RELEASED = (
    "the backward pass itself changes the weights and drops their gradients (gradient release), so "
    "that this has no effect: {}. Leave it out, or make the optimizer without gradient release"
)

Look = dict[int, tuple[Any, int]]
"""By the id of a parameter: its gradient and the gradient's version, which a write raises."""


class GradientCheck:
    """Ends a run that changes gradients outside its updates; checks some epochs' first iterations.

    It compares the gradients before each backward pass of an `Update` with the gradients after the
    previous pass. It accepts gradients from before the run, from the backward pass of another
    `Update`, from a handler between two iterations, and from a backward pass before another
    optimizer's step: a loop's `zero_grad()` drops them as an `Update` does.
    """

    def __init__(self, run: Checked) -> None:
        self.inside: Update | None = None
        """The update that is working now; None between updates."""
        self._run, self._state = run, run.state
        self._last = run.state.iteration + EARLY
        self._seen: dict[Update, Look] = {}
        """By update: its latest look; an update that is not attached appears at its first step."""
        self._points: dict[Update, list[int]] = {}
        """By update: the versions of its weights before a backward pass; empty after a step."""
        self._thread = get_ident()
        self._met: set[int] = set()
        """The updates that had a loss."""
        self._looks = False
        run.at(Events.EPOCH_STARTED, self._begin_epoch)
        run.at(Events.EPOCH_STARTED, self._settle, last=True)
        run.at(Events.EPOCH_COMPLETED, self._settle, last=True)
        for event in (Events.COMPLETED, Events.FAILED, Events.CLOSED):
            run.at(event, self._end)
        self._begin()

    def watch(
        self, update: Update, act: Callable[[], object], loss: Any = None, *, is_mean: bool = False
    ) -> None:
        """Compare the gradients, let an update act on them, and look at them again.

        The action is watched as a whole: a backward pass, a step, or a clearing. `loss` is the loss
        of a micro-batch; if it is a mean, the update divides by the number of micro-batches.

        Raises:
            RuntimeError: Other code has changed gradients.
        """
        outer, self.inside = self.inside, update
        try:
            self._before(update, loss, is_mean=is_mean)
            act()
            self.accept(update)
        finally:
            self.inside = outer

    def accept(self, update: Update) -> None:
        """Look at gradients after a backward pass or a step of this update.

        Raises:
            RuntimeError: The backward pass has added to the open window of another update.
        """
        for each, look in self._seen.items():
            if each is not update and self._is_open(each) and _changed(_look(each), look):
                raise RuntimeError(
                    "the backward pass of one Update has added gradients to the open accumulation "
                    "window of another one: its loss depends on the parameters of both. Cut the "
                    "loss off from the other ones: critic(generator(noise).detach())"
                )
        self._seen = {each: _look(each) for each in {**self._seen, update: {}}}

    def _begin(self) -> None:
        self._state.step_under_way.check = self
        self._seen = {each: _look(each) for each in self._run.updates.values()}
        self._run.at(Events.BACKWARD_COMPLETED, self._look_at_weights)
        self._run.at(Events.ITERATION_COMPLETED, self._end_iteration, last=True)

    def _begin_epoch(self, state: State[Any, Any]) -> None:
        """Begin to check again in the first iterations of an epoch."""
        if state.epoch & (state.epoch - 1):
            return
        self._last = max(self._last, state.iteration + EACH)
        if state.step_under_way.check is None:
            self._begin()
            if self._looks:
                watch_steps(self._stepped)

    def _end_iteration(self, state: State[Any, Any]) -> None:
        if state.iteration >= self._last:
            self._end(state)
        else:
            self._settle(state)

    def _settle(self, state: State[Any, Any]) -> None:
        """Accept gradients that handlers wrote between two iterations, unless a window is open."""
        for each in self._seen:
            if not self._is_open(each):
                self._seen[each] = _look(each)

    def _end(self, state: State[Any, Any]) -> None:
        """End the check."""
        self._seen.clear()
        state.step_under_way.check = None
        unwatch_steps(self._stepped)
        self._run.no_more(Events.BACKWARD_COMPLETED, self._look_at_weights)
        self._run.no_more(Events.ITERATION_COMPLETED, self._end_iteration)

    def _before(self, update: Update, loss: Any, *, is_mean: bool) -> None:
        if loss is not None and id(update) not in self._met:
            self._meet(update)
            check_loss(update, loss, is_mean=is_mean, may_be_scaled="scale" in self._run.words)
        if self._points.get(update, [0]):  # at each backward pass, until the first step
            self._points[update] = [each._version for each in updated(update.optimizer)]
        for each, look in self._seen.items():
            self._compare(each, look)
        if not self._is_open(update):
            self._refuse_shared(update)
            self._seen.pop(update, None)  # its gradients are cleared, and must not live on here

    def _meet(self, update: Update) -> None:
        self._met.add(id(update))
        if len(self._met) == 1:
            _warn_of_clipping(self._run.words)
        if update.compiled is None and not self._looks:  # a hook would be compiled into the step
            self._looks = True
            watch_steps(self._stepped)

    def _stepped(self, optimizer: Any) -> None:
        """Called after each step of any optimizer of the process, also of an update's."""
        if get_ident() != self._thread:
            return
        for update in self._seen:
            own = modules.optimizers_in(update.optimizer) if self._is_open(update) else ()
            if any(each is optimizer for each in own):
                if self.inside is update:
                    self._tell_of_release(update)
                raise RuntimeError(
                    "optimizer.step() was called by hand in an accumulation window of its Update, "
                    "which steps by itself after the last micro-batch: leave optimizer.step() out"
                )
        self._settle(self._state)

    def _look_at_weights(self, state: State[Any, Any]) -> None:
        """Before the first step of an update: look whether its backward pass has made the step."""
        for update, before in self._points.items():
            if update.optimizer is not state.optimizer or not before:
                continue
            self._points[update] = []
            now = zip(updated(update.optimizer), before, strict=False)
            own = [(each, each._version != version) for each, version in now if each.requires_grad]
            moved = [is_written for each, is_written in own if each.grad is None]
            is_hooked = any(each._post_accumulate_grad_hooks for each, _ in own)
            if any(moved) or (is_hooked and len(moved) == len(own)):
                self._tell_of_release(update)

    def _tell_of_release(self, update: Update) -> None:
        if update.scaler is not None or update.accumulate > 1:
            raise RuntimeError(RELEASED.format("accumulate=, or the gradient scaler"))
        signals = self._run.moments.signals
        found = [each for event in READ for each in signals[event].receivers.values()]
        if names := dict.fromkeys(filter(None, (getattr(e, "handler", "") for e in found))):
            warn(RELEASED.format(", ".join(names)))

    def _compare(self, update: Update, look: Look) -> None:
        now = _look(update)
        if self._is_open(update):
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
        own: set[int] = set()
        for other in self._state.step_under_way.windows:
            own = own or {id(each) for each in updated(update.optimizer)}
            if any(id(each) in own and each.grad is not None for each in updated(other.optimizer)):
                raise RuntimeError(
                    "two Updates have the same parameters, and one begins a step in the open "
                    "accumulation window of the other, whose gradients it clears. Make one Update "
                    "for these parameters, outside of the process function"
                )

    def _is_open(self, update: Update) -> bool:
        return update in self._state.step_under_way.windows


def _look(update: Update) -> Look:
    gradients = {id(each): each.grad for each in updated(update.optimizer)}
    return {key: (each, 0 if each is None else each._version) for key, each in gradients.items()}


def _changed(now: Look, look: Look) -> list[Any]:
    """The gradients that were replaced or written since the look."""
    both = [(*now[key], *look[key]) for key in now if key in look]
    return [
        gradient
        for gradient, version, old, old_version in both
        if gradient is not None and (gradient is not old or version != old_version)
    ]


def _has_values(gradient: Any) -> bool:
    """False for a gradient of zeros, which `zero_grad(set_to_none=False)` leaves."""
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return bool((values != 0).any())


def _warn_of_clipping(words: set[str]) -> None:
    """Warn if a function clips without a backward pass: the update cleared the gradients before."""
    if (clips := sorted(CLIPS & words)) and "backward" not in words:
        warn(
            f"the process function calls {clips[0]}(), and makes its steps by an Update, which "
            "clears the gradients before it returns, so that nothing is left to clip. Leave it "
            "out, and write engine.add(ClipGradNorm(1.0)), or ClipGradValue"
        )


def check_loss(update: Update, loss: Any, *, is_mean: bool, may_be_scaled: bool) -> None:
    """Find a loss that the script divides or scales by hand, although its update does so too.

    A sum that is divided by hand, such as `(loss_a + loss_b) / 2` or a sum over samples, is a mean
    of its own, and not a mistake.

    A scaler's factor is checked only if `may_be_scaled`, as the check waits for its device.

    Raises:
        ValueError: A gradient scaler has scaled it.
    """
    made = getattr(loss, "grad_fn", None)
    kind = type(made).__name__
    if kind not in ("DivBackward0", "MulBackward0"):
        return
    other = getattr(made, "_saved_other", None)
    if other is None or other.ndim or other.requires_grad:
        return
    if kind == "MulBackward0":
        if may_be_scaled and _is_scale(other):
            raise ValueError(
                "the loss was scaled by a GradScaler. The Update scales and unscales by itself: "
                "write Update(optimizer, scaler=scaler), and update(state, loss) in the place of "
                "scaler.scale(loss), scaler.step() and scaler.update()"
            )
        return
    number = update.accumulate
    is_number = str(other.dtype) in ("torch.int64", "torch.float64") and other.device.type == "cpu"
    if number > 1 and is_mean and is_number and other == number and not _is_sum(made, number):
        warn(
            f"the loss is divided by {number}, and this Update has accumulate={number}: it makes "
            f"the mean over the micro-batches of a window itself, so that gradients are {number} "
            f"times too small. Leave `/ {number}` out; where it is meant, write `* {1 / number:g}`"
        )


def _is_scale(factor: Any) -> bool:
    """True for a scaler's factor: a power of two in a tensor; it is read from its device."""
    if str(factor.dtype) != "torch.float32":
        return False
    value = float(factor)
    return value >= SCALED and value.hex().startswith("0x1.0000000000000p")


def _is_sum(division: Any, number: int) -> bool:
    """True if the divided value is a sum over samples, or a sum of `number` losses."""
    divided = division.next_functions[0][0]
    kind = type(divided).__name__
    if kind.startswith("Sum") or getattr(divided, "_saved_reduction", None) == 2:
        return True
    return kind == "AddBackward0" and _terms(divided) == number


def _terms(node: Any) -> int:
    """The number of losses that a chain of additions sums up."""
    if type(node).__name__ != "AddBackward0":
        return 1
    return sum(_terms(each) for each, _ in node.next_functions)

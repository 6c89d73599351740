"""The length of a run, for schedules that span the whole run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch.optim import Optimizer

from ...engine import Events, State
from ...engine.modules import optimizers_in, plain_optimizer
from ...engine.update import Update


@dataclass(frozen=True)
class Horizon:
    """The totals of a run, from its beginning: what it has made, and what is to come.

    What is to come follows from the limits of the run and the length of its data.

    A window of `accumulate` batches makes a step, and so does the short last window of an epoch.
    The number of ranks has no effect. Steps that will be skipped, as after a float16 overflow, are
    counted.

    >>> Horizon(max_epochs=3, epoch_length=5, accumulate=2).steps
    9
    >>> Horizon(max_epochs=3, epoch_length=5, accumulate=2, max_steps=7).epochs
    3
    """

    max_epochs: int | None = None
    max_iterations: int | None = None
    max_steps: int | None = None
    epoch_length: int | None = None
    """Batches of an epoch; None if unknown."""
    accumulate: int | None = 1
    """Batches per optimizer step; None if unknown."""
    total: int | None = None
    """The steps of the run as given by the script; None if computed from the other fields."""
    begun: tuple[int, int, int] = (0, 0, 0)
    """The epochs, batches and steps that the run has made, before the epochs of `epoch_length`."""
    epoch_steps: int | None = None
    """The steps that an epoch made whose batches were not those that the data said."""
    is_asked: ClassVar[bool] = False
    """True once a number of steps was read."""

    @property
    def steps(self) -> int:
        """The optimizer steps of the run.

        Raises:
            ValueError: The number is unknown; the message says what to pass.
        """
        vars(self)["is_asked"] = True
        if self.total is not None:
            return self.total
        limits = (self.max_iterations, self._batches_of_epochs())
        _, batches, steps = self.begun
        counts = [steps + self._steps_to_come(e - batches) for e in limits if e is not None]
        counts += [] if self.max_steps is None else [self.max_steps]
        if self.max_epochs is not None and self.epoch_length is None and self.max_steps is None:
            raise self._unknown("the steps of the run")
        return min(counts)

    @property
    def epochs(self) -> int:
        """The epochs of the run, including one that a limit ends early.

        Raises:
            ValueError: The number is unknown; the message says what to pass.
        """
        if self.max_iterations is None and self.max_steps is None and self.max_epochs is not None:
            return self.max_epochs
        if self.total is not None:
            return replace(self, total=None).epochs
        steps, each = self.steps - self.begun[2], self.steps_per_epoch
        return self.begun[0] - (-steps // max(each, 1))

    @property
    def steps_per_epoch(self) -> int:
        """The optimizer steps of an epoch.

        Raises:
            ValueError: The number is unknown; the message says what to pass.
        """
        vars(self)["is_asked"] = True
        if self.epoch_length is None:
            raise self._unknown("the steps of an epoch")
        if self.total is not None:
            return -(-self.total // max(self.epochs, 1))
        return self._steps_to_come(self.epoch_length)

    @property
    def batches(self) -> int:
        """The batches that the steps of the run take."""
        steps, size = self.steps, self.accumulate
        if size == 1:
            return steps
        full, rest = divmod(steps, self.steps_per_epoch)
        assert size is not None
        assert self.epoch_length is not None
        return full * self.epoch_length + min(rest * size, self.epoch_length)

    @property
    def limit(self) -> int | None:
        """The batches after which the run ends by `max_epochs` or `max_iterations`, if known."""
        limits = [self.max_iterations, self._batches_of_epochs()]
        return min((each for each in limits if each is not None), default=None)

    def at_pace(self, steps: int, batches: int) -> float:
        """The steps that the run will make if all its epochs are as the first one was."""
        limit = replace(self, epoch_length=self.epoch_length or batches).limit
        ends = (self.max_steps, None if limit is None else steps * limit / batches)
        return min(each for each in ends if each is not None)

    def _batches_of_epochs(self) -> int | None:
        if self.max_epochs is None or self.epoch_length is None:
            return None
        epochs, batches, _ = self.begun
        return batches + (self.max_epochs - epochs) * self.epoch_length

    def _steps_to_come(self, batches: int) -> int:
        """The steps of `batches` batches, where each epoch closes its last window."""
        if self.accumulate is None:
            raise ValueError(
                "how many batches make a step of this optimizer is not known: tell the engine of "
                "the Update that steps it, by Engine(train_step, update, ...) or "
                "engine.add(update), or limit the run by run(..., max_steps=)"
            )
        if self.accumulate == 1:
            return batches
        if self.epoch_length is None:
            raise self._unknown("the steps of the run")
        full, rest = divmod(batches, self.epoch_length) if self.epoch_length else (0, 0)
        each = self.epoch_steps or -(-self.epoch_length // self.accumulate)
        return full * each + min(each, -(-rest // self.accumulate))

    def _unknown(self, what: str) -> ValueError:
        return ValueError(
            f"{what} cannot be known, because the data does not say how many batches it has: pass "
            "run(..., max_steps=) to limit the run by steps, or epoch_length= to say what an epoch "
            "is; or LRSchedule(..., horizon=) with their number; or move the rate by epochs: "
            "when=Events.EPOCH_COMPLETED"
        )


def update_of(state: State[Any, Any], optimizer: Optimizer) -> Update | None:
    """The engine's `Update` that steps an optimizer, if the engine knows it."""
    optimizer, *_ = optimizers_in(plain_optimizer(optimizer))
    for each in state.engine.find(Update):
        if any(one is optimizer for one in optimizers_in(each.optimizer)):
            return each
    return None


def horizon_of(state: State[Any, Any], optimizer: Optimizer, total: int | None = None) -> Horizon:
    """The totals of a run in steps of `optimizer`, as far as they are known when it starts.

    `max_steps` counts the steps of the optimizer whose `Update` announces `STEP_COMPLETED`. For
    another optimizer it is converted into batches.

    Args:
        state: The run.
        optimizer: Makes the steps.
        total: Their number, if the script says it.
    """
    own, updates = update_of(state, optimizer), state.engine.find(Update)
    main = next((each for each in updates if each.event is Events.STEP_COMPLETED), None)
    horizon = Horizon(
        *(state.max_epochs, state.max_iterations, state.max_steps, state.epoch_length),
        accumulate=None if own is None else own.accumulate,
        total=total,
    )
    if total is not None or own is None or own is main or state.max_steps is None:
        return horizon
    if main is not None and main.accumulate == own.accumulate:
        return horizon
    whole = replace(horizon, accumulate=None if main is None else main.accumulate)
    return replace(horizon, max_steps=None, max_iterations=whole.batches)

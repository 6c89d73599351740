"""What a LightningModule gets of its trainer: answers of the run under way, and its optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import Optimizer

from ....engine import EventEnum, Events, ranks
from ....engine.modules import parameters_of
from ....engine.state import State, under_way
from ....engine.update import Gradients
from .hooks import Hooks
from .optimizers import SchedulerConfig

if TYPE_CHECKING:
    from .log import Carried


class LightningEvents(EventEnum):
    """What the engine of a LightningModule announces besides the engine's events."""

    OTHER_STEP_COMPLETED = "other_step_completed"
    """In manual optimisation: a step of an optimizer that is not the first one."""


OTHER_STEP = LightningEvents.OTHER_STEP_COMPLETED
STAGES = {"test": "test", "predict": "predict", "validation": "validate"}
"""By `stage_of`: the values of Lightning's RunningStage."""
READ: dict[str, Callable[[State[Any, Any]], Any]] = {
    "current_epoch": lambda state: max(0, training(state).epoch - (not _is_over(training(state)))),
    "global_step": lambda state: training(state).step + training(state).counts[OTHER_STEP],
    "max_epochs": lambda state: training(state).max_epochs,
    "max_steps": lambda state: training(state).max_steps or -1,
    "num_training_batches": lambda state: training(state).epoch_length,
    "train_dataloader": lambda state: training(state).control.data,
    "callback_metrics": lambda state: training(state).metrics,
    "logged_metrics": lambda state: training(state).metrics,
    "is_last_batch": lambda state: state.is_last_batch,
    "training": lambda state: state.training,
    "validating": lambda state: stage_of(state) == "validation" and not state.training,
    "testing": lambda state: stage_of(state) == "test",
    "predicting": lambda state: stage_of(state) == "predict",
    "stage": lambda state: "train" if state.training else STAGES[stage_of(state)],
    "should_stop": lambda state: training(state).stop_reason is not None,
    "global_rank": lambda state: ranks.rank(),
    "local_rank": lambda state: ranks.local_rank(),
    "world_size": lambda state: ranks.world_size(),
    "is_global_zero": lambda state: ranks.rank() == 0,
}
"""By attribute name: how to get its value from the state of the current run."""
OF_A_RUN = ("max_epochs", "num_training_batches", "stage", "train_dataloader")
"""Attributes that are unknown before the run begins."""


def _is_over(state: State[Any, Any]) -> bool:
    return state.counts[Events.COMPLETED] > 0


def training(state: State[Any, Any]) -> State[Any, Any]:
    """The training inside which an evaluation happens; the run itself, if there is none."""
    while not state.training and state.parent is not None:
        state = state.parent
    return state


def stage_of(state: State[Any, Any]) -> str:
    """Which step an evaluation calls, by its name: test, predict, or validation for all others."""
    return state.name if state.name in ("test", "predict") else "validation"


class TrainerView:
    """Stands in for Lightning's Trainer, in a module and in callbacks.

    What it lacks is an error that names it. A script gives more by
    `from_lightning(module, trainer={"estimated_stepping_batches": 1000})`.
    """

    accumulate_grad_batches = 1
    barebones = fast_dev_run = sanity_checking = False
    gradient_clip_val = gradient_clip_algorithm = logger = progress_bar_callback = None
    loggers: Sequence[Any] = ()
    recall: Callable[[State[Any, Any]], Carried]
    """The data that the run keeps from batch to batch."""

    def __init__(self, hooks: Hooks, given: Mapping[str, Any]) -> None:
        self.hooks = hooks
        self.lightning_module: Any = hooks.module
        self.model: Any = hooks.module
        self.callbacks: list[Any] = []
        self.optimizers: list[Optimizer] = []
        self.lr_scheduler_configs: list[SchedulerConfig] = []
        self.precision_plugin = self.strategy = self.state = self
        vars(self).update(given)
        if "logger" in given:
            self.loggers = [self.logger]

    def __deepcopy__(self, memo: object) -> TrainerView:
        """A copy of the module, as for an average of its weights, reads the same run."""
        return self

    def __getattr__(self, name: str) -> Any:
        state = under_way.get()
        if name in READ and (state is not None or name not in OF_A_RUN):
            return READ[name](State() if state is None else state)
        when = " before the run begins" if name in READ else ""
        raise AttributeError(
            f"trainer.{name} is not known{when} to an engine made by from_lightning; if it is a "
            f"plain value, give it: from_lightning(module, trainer={{{name!r}: ...}})"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "should_stop":
            if value and (state := under_way.get()) is not None:
                training(state).stop("trainer.should_stop")
            return
        super().__setattr__(name, value)

    def backward(self, loss: Tensor, optimizer: None, *args: Any, **kwargs: Any) -> None:
        """Compute gradients, for `self.manual_backward` of a module."""
        self.hooks.call("on_before_backward", loss)
        self.lightning_module.backward(loss, *args, **kwargs)
        self.hooks.call("on_after_backward")

    def clip_gradients(self, optimizer: Optimizer, value: float, algorithm: str) -> None:
        """Clip, for `self.clip_gradients` of a module."""
        clip = clip_grad_value_ if algorithm == "value" else clip_grad_norm_
        if value > 0:
            clip(parameters_of(optimizer), value)


class ManualOptimizer:
    """An optimizer as `self.optimizers()` gives it: its steps are announced, so handlers act.

    Everything else is the optimizer's own.
    """

    def __init__(self, optimizer: Optimizer, trainer: TrainerView) -> None:
        self.optimizer = optimizer
        self._trainer = trainer

    def step(self, closure: Callable[[], Any] | None = None) -> None:
        """Announce the gradients, step, and announce the step; a handler may skip it."""
        if closure is not None:
            raise ValueError(
                "optimizer.step(closure) is not taken in manual optimisation: call "
                "self.manual_backward(loss) first, and then optimizer.step()"
            )
        state = under_way.get()
        if state is None or not state.training:
            raise RuntimeError("optimizer.step() was called outside of training_step")
        step = state.step_under_way
        step.gradients, step.is_skipped = Gradients(self.optimizer), False
        state.fire(Events.BACKWARD_COMPLETED)
        if step.is_skipped:
            step.is_skipped, step.skipped_at = None, state.iteration
            state.fire(Events.STEP_SKIPPED)
            state.metrics["skipped_steps"] = state.counts[Events.STEP_SKIPPED]
            return
        step.is_skipped = None
        self._trainer.hooks.call("on_before_optimizer_step", self.optimizer)
        step.gradients.norms.clear()
        state.fire(Events.GRADIENTS_READY)
        self.optimizer.step()
        step.gradients.tensors = ()
        is_first = self.optimizer is self._trainer.optimizers[0]
        state.fire(Events.STEP_COMPLETED if is_first else OTHER_STEP)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)


def optimizers(trainer: TrainerView, use_pl_optimizer: bool = True) -> Any:
    """The optimizer, or the list of them: the `optimizers` of a LightningModule."""
    found: list[Any] = list(trainer.optimizers)
    if use_pl_optimizer:
        found = [ManualOptimizer(each, trainer) for each in found]
    return found[0] if len(found) == 1 else found

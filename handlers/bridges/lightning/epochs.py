"""Where in a run the hooks of a LightningModule are called, its schedules step, and it logs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch.nn import Module

from ....engine import Events, Stage, metric_states, ranks
from ....engine.checks import warn
from ....engine.modules import are_spread
from ....engine.state import State
from .log import Carried
from .trainer import TrainerView, stage_of, training

if TYPE_CHECKING:
    from ....engine import Engine
    from .hooks import Hooks

ENDED = Events.EPOCH_COMPLETED(last=True)
HOOKS: dict[Events, tuple[str, ...]] = {
    Events.STARTED: ("on_fit_start", "on_train_start"),
    Events.EPOCH_STARTED: ("on_train_epoch_start",),
    Events.COMPLETED: ("on_train_end", "on_fit_end"),
}
HOOKS_OF_EVALUATIONS: dict[Events, tuple[str, ...]] = {
    Events.STARTED: ("on_{}_start",),
    Events.EPOCH_STARTED: ("on_{}_epoch_start",),
}
"""By event: the hooks without arguments."""


class LightningEpochs:
    """The handler of a LightningModule: its hooks outside of batches, its schedules, its log."""

    def __init__(self, model: Module, trainer: TrainerView) -> None:
        self.model = model
        """The module to call, or the wrapper around it."""
        self.trainer = trainer
        self.hooks: Hooks = trainer.hooks
        self.module: Any = trainer.hooks.module
        self._looks_at_gradients = False

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Attach the hooks, the schedules, and what was logged."""
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.begin)
        for event, names in HOOKS.items():
            engine.on(event)(partial(self.call, names))
        if self.module.automatic_optimization:
            if self.hooks.own & {"on_before_optimizer_step", "configure_gradient_clipping"}:
                self.look_at_gradients(engine)
            if any(each.interval == "step" for each in self.trainer.lr_scheduler_configs):
                engine.on(Events.STEP_COMPLETED)(self.step_schedules)
        engine.on(ENDED)(self.end_epoch)
        engine.on(Events.CLOSED)(self.tear_down)
        evaluation = engine.evaluation
        for event, names in HOOKS_OF_EVALUATIONS.items():
            evaluation.on(event, stage=Stage.MEASURE)(partial(self.call, names))
        evaluation.on(ENDED, stage=Stage.MEASURE)(self.end_evaluation)

    def look_at_gradients(self, engine: Engine[Any, Any]) -> None:
        """Call the hooks that look at gradients; only where there are some, since it costs."""
        if self.module.automatic_optimization and not self._looks_at_gradients:
            engine.on(Events.BACKWARD_COMPLETED)(self.before_step)
            self._looks_at_gradients = True

    def call(self, names: tuple[str, ...], state: State[Any, Any]) -> None:
        """Call hooks without arguments; in names of evaluations, `{}` is the stage."""
        for name in names:
            self.hooks.call(name.format(stage_of(state)))

    def recall(self, state: State[Any, Any]) -> Carried:
        """The data that the run keeps from batch to batch."""
        return state.recall(self, partial(Carried, self.module))

    def begin(self, state: State[Any, Any]) -> None:
        """Put back what a saved run carried, and refuse a module that would not train well."""
        if "training_step" not in self.hooks.own:
            raise ValueError(
                f"{type(self.module).__name__} has no training_step: this engine only evaluates"
            )
        if state.iteration == 0:
            metric_states.reset(self.module)  # an earlier run may have failed in mid-epoch
        self.recall(state)
        is_alone = self.model is self.module and not are_spread(self.module.parameters())
        if is_alone and ranks.is_distributed():
            raise ValueError(
                "several ranks, and nothing averages the gradients of this module: wrap it, "
                "from_lightning(DistributedDataParallel(module)), which is the place of "
                "Trainer(strategy='ddp')"
            )
        for each in self.trainer.lr_scheduler_configs:
            if state.iteration > 0 and hasattr(each.scheduler, "optimizer"):
                # torch would warn: it looks for steps of this process
                each.scheduler.optimizer._opt_called = True

    def before_step(self, state: State[Any, Any]) -> None:
        """Call the hooks that look at gradients, before handlers clip them."""
        self.hooks.call("on_before_optimizer_step", state.optimizer)
        if "configure_gradient_clipping" in self.hooks.own:
            self.module.configure_gradient_clipping(
                state.optimizer,
                gradient_clip_val=self.trainer.gradient_clip_val,
                gradient_clip_algorithm=self.trainer.gradient_clip_algorithm,
            )

    def step_schedules(self, state: State[Any, Any]) -> None:
        """Step the schedules of steps; as in Lightning, frequencies count batches of the epoch."""
        for each in self.trainer.lr_scheduler_configs:
            if each.is_due("step", state.iteration_in_epoch):
                each.step(self.module, state.metrics)

    def end_epoch(self, state: State[Any, Any]) -> None:
        """Step schedules, write what was logged over the epoch, and call `on_train_epoch_end`."""
        is_whole = not state.in_epoch  # else the run ends inside the epoch
        schedules = (
            self.trainer.lr_scheduler_configs
            if is_whole and self.module.automatic_optimization
            else []
        )
        for each in schedules:
            if each.interval == "step" and each.frequency > state.iteration_in_epoch > 0:
                warn(
                    f"{type(each.scheduler).__name__} with frequency={each.frequency} never steps: "
                    "as in Lightning, it counts batches of the epoch, and this one had "
                    f"{state.iteration_in_epoch}; give a smaller frequency, or take "
                    "engine.add(LRSchedule(scheduler, when=...)) in its place"
                )
        due = [each for each in schedules if each.is_due("epoch", state.epoch)]
        for each in due:
            if not each.reduce_on_plateau:
                each.step(self.module, state.metrics)
        self._write("on_train_epoch_end", state, state)
        for each in due:
            if each.reduce_on_plateau:
                each.step(self.module, state.metrics)
        if is_whole:
            self.recall(state).reset()

    def end_evaluation(self, state: State[Any, Any]) -> None:
        """Write what was logged: under its own name also to the metrics of the training."""
        is_main = state.name in ("", "val", "validation", "test")
        self._write(f"on_{stage_of(state)}_epoch_end", state, training(state) if is_main else state)
        self.recall(state).reset()
        self.hooks.call(f"on_{stage_of(state)}_end")

    def _write(self, hook: str, state: State[Any, Any], to: State[Any, Any]) -> None:
        """Write the logged values, call the hook, which may read them, and write what it logs."""
        carried = self.recall(state)
        to.metrics.update(carried.results())
        if hook in self.hooks:
            known = dict(carried.logged)
            self.hooks.call(hook)
            to.metrics.update(carried.results(known))

    def tear_down(self, state: State[Any, Any]) -> None:
        """Call `teardown`."""
        if "teardown" in self.hooks.own:
            self.module.teardown(stage="fit")

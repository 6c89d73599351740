"""What the engine of a LightningModule does with a batch, and where it calls hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module

from .. import metric_states, ranks
from ..events import Events, Stage
from ..modules import are_spread
from ..state import State
from ..update import Update
from .carried import Carried
from .hooks import called_by_forward, takes_index
from .trainer import TrainerView, stage_of, training

if TYPE_CHECKING:
    from ..engine import Engine

ENDED = Events.EPOCH_COMPLETED(last=True)
HOOKS = {
    Events.STARTED: ("on_fit_start", "on_train_start"),
    Events.EPOCH_STARTED: ("on_train_epoch_start",),
    Events.COMPLETED: ("on_train_end", "on_fit_end"),
}
HOOKS_OF_EVALUATIONS = {
    Events.STARTED: ("on_{}_start",),
    Events.EPOCH_STARTED: ("on_{}_epoch_start",),
}
"""By event: the hooks that take nothing."""


class LightningSteps:
    """The process functions of `from_lightning`, and the handlers that belong to them."""

    def __init__(
        self,
        model: Module,
        trainer: TrainerView,
        update: Update | None,
        prepare: Callable[[Any], Any] | None,
        autocast: torch.autocast | None,
    ) -> None:
        self.model = model
        """What is called: the module, or the wrapper around it."""
        self.trainer = trainer
        self.hooks = trainer.hooks
        self.module = trainer.hooks.module
        self.update = update
        self.prepare = prepare
        self.autocast = autocast or nullcontext()
        steps = ("training_step", "validation_step", "test_step", "predict_step")
        self.takes_index = {name: takes_index(getattr(self.module, name)) for name in steps}

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Attach the hooks, the schedules, and what was logged."""
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.begin)
        for event, names in HOOKS.items():
            engine.on(event)(partial(self.call, names))
        if self.update is not None:
            engine.on(Events.GRADIENTS_READY)(self.before_step)
            if any(each.interval == "step" for each in self.trainer.lr_scheduler_configs):
                engine.on(Events.STEP_COMPLETED)(self.step_schedules)
        engine.on(ENDED)(self.end_epoch)
        engine.on(Events.CLOSED)(self.tear_down)
        evaluation = engine.evaluation
        for event, names in HOOKS_OF_EVALUATIONS.items():
            evaluation.on(event, stage=Stage.MEASURE)(partial(self.call, names))
        evaluation.on(ENDED, stage=Stage.MEASURE)(self.end_evaluation)

    def call(self, names: tuple[str, ...], state: State[Any, Any]) -> None:
        """Call hooks that take nothing; those of evaluations by their stage."""
        for name in names:
            self.hooks.call(name.format(stage_of(state)))

    def recall(self, state: State[Any, Any]) -> Carried:
        """What the run carries from batch to batch."""
        return state.recall(self, partial(Carried, self.module))

    def begin(self, state: State[Any, Any]) -> None:
        """Put back what a saved run carried, and refuse a module that would not train well."""
        if "training_step" not in self.hooks.own:
            raise ValueError(
                f"{type(self.module).__name__} has no training_step: this engine only evaluates"
            )
        if state.iteration == 0:
            metric_states.reset(self.module)  # a run before may have failed in mid-epoch
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

    # What is done with a batch

    def train(self, state: State[Any, Any], batch: Any) -> Any:
        """Call `training_step`, and update; in manual optimisation the module updates itself."""
        index = state.iteration_in_epoch - 1
        if self.prepare is not None:
            batch = self.prepare(batch)
        if self.hooks.call("on_train_batch_start", batch, index) == -1:
            state.stop_epoch()
            return None
        if self.update is None:
            _, output = self._loss(batch, index)
        else:
            with self.update.micro_batch(state):
                output = self._learn(state, self.update, batch, index)
        self.hooks.call("on_train_batch_end", output, batch, index)
        return output

    def _learn(self, state: State[Any, Any], update: Update, batch: Any, index: int) -> Any:
        loss, output = self._loss(batch, index)
        if loss is not None:
            self.hooks.call("on_before_backward", loss)
        if loss is not None and "on_after_backward" in self.hooks:
            update.backward(state, loss)
            self.hooks.call("on_after_backward")
            update.advance(state, loss)
        else:
            again = (lambda: self._loss(batch, index)[0]) if update.needs_closure else None
            update(state, loss, closure=again)
        return output

    def _loss(self, batch: Any, index: int) -> tuple[Any, dict[str, Any]]:
        """The loss of a batch with its graph, and the output, whose loss has none."""
        made = self._forward("training_step", batch, index)
        output = dict(made) if isinstance(made, Mapping) else {"loss": made}
        loss = output.get("loss")
        if made is None:
            return None, {}
        if isinstance(loss, Tensor):
            return loss, {**output, "loss": loss.detach()}
        if self.update is None and isinstance(made, Mapping):
            return None, output
        raise TypeError(
            f"training_step returned a {type(made).__name__}; it needs the loss, a dictionary with "
            "'loss', or None to skip the batch"
        )

    def _forward(self, name: str, batch: Any, index: int) -> Any:
        """Call a step of the module; through the wrapper, where there is one."""
        arguments = (batch, index) if self.takes_index[name] else (batch,)
        step = getattr(self.module, name)
        with self.autocast:
            if self.model is self.module or name != "training_step":
                return step(*arguments)
            with called_by_forward(self.module, step):
                return self.model(*arguments)

    def evaluate(self, state: State[Any, Any], batch: Any) -> Any:
        """Call `validation_step`; `test_step` or `predict_step` in an evaluation of that name."""
        stage, index = stage_of(state), state.iteration_in_epoch - 1
        if f"{stage}_step" not in self.hooks.own and stage != "predict":
            raise ValueError(
                f"{type(self.module).__name__} has no {stage}_step; an evaluation called 'test' "
                "needs test_step, one called 'predict' needs predict_step or forward, and all "
                "others need validation_step"
            )
        if self.prepare is not None:
            batch = self.prepare(batch)
        self.hooks.call(f"on_{stage}_batch_start", batch, index)
        output = self._forward(f"{stage}_step", batch, index)
        self.hooks.call(f"on_{stage}_batch_end", output, batch, index)
        return output

    # What follows a step and an epoch

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
        is_whole = not state.control.in_epoch  # else the run ends inside of it
        schedules = self.trainer.lr_scheduler_configs if is_whole and self.update else []
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
        """Write what was logged, and what a hook logs that may look at it."""
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

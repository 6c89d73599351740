"""What the engine of a LightningModule does with a batch, and where it calls the module's hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module

from .. import metric_states, ranks
from ..events import EventEnum, Events, Stage
from ..state import State
from ..update import Update
from .carried import Carried
from .optimizers import Schedule
from .trainer import TrainerView, stage_of, training

if TYPE_CHECKING:
    from ..engine import Engine

ENDED = Events.EPOCH_COMPLETED(last=True)


class LightningSteps:
    """The process functions of `from_lightning`, and the handlers that belong to them."""

    def __init__(
        self,
        model: Module,
        module: Any,
        trainer: TrainerView,
        hooks: set[str],
        update: Update | None,
        prepare: Callable[[Any], Any] | None,
        autocast: torch.autocast | None,
    ) -> None:
        self.model = model
        """What is called: the module, or the wrapper around it."""
        self.module = module
        self.trainer = trainer
        self.hooks = hooks
        self.update = update
        self.prepare = prepare
        self.autocast = autocast
        self.takes_index = {
            name: _takes_index(getattr(module, name))
            for name in ("training_step", "validation_step", "test_step", "predict_step")
        }

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Attach the hooks that the module defines, the schedules, and what was logged."""
        measure, hooks = Stage.MEASURE, self.hooks
        engine.on(Events.STARTED, stage=measure)(self.begin)
        self._call(engine, Events.STARTED, "on_fit_start", "on_train_start")
        self._call(engine, Events.EPOCH_STARTED, "on_train_epoch_start")
        if self.update is not None:
            if hooks & {"on_before_optimizer_step", "configure_gradient_clipping"}:
                engine.on(Events.GRADIENTS_READY)(self.before_step)
            if any(each.interval == "step" for each in self.trainer.lr_scheduler_configs):
                engine.on(Events.STEP_COMPLETED)(self.step_schedules)
        engine.on(ENDED)(self.end_epoch)
        self._call(engine, Events.COMPLETED, "on_train_end", "on_fit_end")
        if "teardown" in hooks:
            engine.on(Events.CLOSED)(self.tear_down)
        evaluation = engine.evaluation
        for event, when in ((Events.STARTED, "start"), (Events.EPOCH_STARTED, "epoch_start")):
            if any(f"on_{stage}_{when}" in hooks for stage in ("validation", "test", "predict")):
                evaluation.on(event, stage=measure)(partial(self.call_of_stage, when))
        evaluation.on(ENDED, stage=measure)(self.end_evaluation)

    def _call(self, engine: Engine[Any, Any], event: EventEnum, *names: str) -> None:
        """Call these hooks of the module at an event, if it defines them."""
        for name in names:
            if name in self.hooks:
                engine.on(event)(_Hook(getattr(self.module, name)))

    def recall(self, state: State[Any, Any]) -> Carried:
        """What the run carries from batch to batch."""
        return state.recall(self, partial(Carried, self.module))

    def begin(self, state: State[Any, Any]) -> None:
        """Put back what a saved run carried, and refuse ranks that would train apart."""
        if state.iteration == 0:
            metric_states.reset(self.module)  # a run before may have failed in mid-epoch
        self.recall(state)
        if ranks.is_distributed() and self.model is self.module and not _is_sharded(self.module):
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
        module, hooks, index = self.module, self.hooks, state.iteration_in_epoch - 1
        if self.prepare is not None:
            batch = self.prepare(batch)
        if "on_train_batch_start" in hooks and module.on_train_batch_start(batch, index) == -1:
            state.stop_epoch()
            return None
        if self.update is None:
            with self.autocast or nullcontext():
                made = self._forward("training_step", batch, index)
            output = _output(made, needs_loss=False)
        else:
            with self.update.micro_batch(state):
                output = self._learn(state, self.update, batch, index)
        if "on_train_batch_end" in hooks:
            module.on_train_batch_end(output, batch, index)
        return output

    def _learn(self, state: State[Any, Any], update: Update, batch: Any, index: int) -> Any:
        loss_of = partial(self._loss, batch, index)
        loss, output = loss_of()
        if loss is not None and "on_before_backward" in self.hooks:
            self.module.on_before_backward(loss)
        if loss is not None and "on_after_backward" in self.hooks:
            update.backward(state, loss)
            self.module.on_after_backward()
            update.advance(state, loss)
        else:
            update(state, loss, closure=(lambda: loss_of()[0]) if update.needs_closure else None)
        return output

    def _loss(self, batch: Any, index: int) -> Any:
        """The loss of a batch with its graph, and the output."""
        with self.autocast or nullcontext():
            made = self._forward("training_step", batch, index)
        loss = made.get("loss") if isinstance(made, Mapping) else made
        return loss, _output(made, needs_loss=True)

    def _forward(self, name: str, batch: Any, index: int) -> Any:
        """Call a step of the module; through the wrapper, where there is one."""
        arguments = (batch, index) if self.takes_index[name] else (batch,)
        step = getattr(self.module, name)
        if self.model is self.module or name != "training_step":
            return step(*arguments)

        def first(*given: Any) -> Any:
            del self.module.forward  # the module's own again, which `training_step` may call
            return step(*given)

        self.module.forward = first
        try:
            return self.model(*arguments)
        finally:
            vars(self.module).pop("forward", None)

    def evaluate(self, state: State[Any, Any], batch: Any) -> Any:
        """Call `validation_step`; `test_step` or `predict_step` in an evaluation of that name."""
        stage, index = stage_of(state), state.iteration_in_epoch - 1
        if f"{stage}_step" not in self.hooks and stage != "predict":
            raise ValueError(
                f"{type(self.module).__name__} has no {stage}_step; an evaluation called 'test' "
                "needs test_step, one called 'predict' needs predict_step or forward, and all "
                "others need validation_step"
            )
        if self.prepare is not None:
            batch = self.prepare(batch)
        if f"on_{stage}_batch_start" in self.hooks:
            getattr(self.module, f"on_{stage}_batch_start")(batch, index)
        with self.autocast or nullcontext():
            output = self._forward(f"{stage}_step", batch, index)
        if f"on_{stage}_batch_end" in self.hooks:
            getattr(self.module, f"on_{stage}_batch_end")(output, batch, index)
        return output

    # What follows a step and an epoch

    def before_step(self, state: State[Any, Any]) -> None:
        """Call the hooks that look at gradients, before handlers clip them."""
        if "on_before_optimizer_step" in self.hooks:
            self.module.on_before_optimizer_step(state.optimizer)
        if "configure_gradient_clipping" in self.hooks:
            trainer = self.trainer
            self.module.configure_gradient_clipping(
                state.optimizer,
                gradient_clip_val=trainer.gradient_clip_val,
                gradient_clip_algorithm=trainer.gradient_clip_algorithm,
            )

    def step_schedules(self, state: State[Any, Any]) -> None:
        """Step the schedulers of steps; as in Lightning, frequencies count batches of the epoch."""
        for each in self.trainer.lr_scheduler_configs:
            if each.interval == "step" and state.iteration_in_epoch % each.frequency == 0:
                self._step_schedule(each, state)

    def _step_schedule(self, schedule: Schedule, state: State[Any, Any]) -> None:
        value = None
        if schedule.reduce_on_plateau:
            if not schedule.strict and schedule.monitor not in state.metrics:
                return
            value = state.metrics[str(schedule.monitor)]
        self.module.lr_scheduler_step(schedule.scheduler, value)

    def end_epoch(self, state: State[Any, Any]) -> None:
        """Step schedules, call `on_train_epoch_end`, and write what was logged over the epoch."""
        is_whole = not state.control.in_epoch  # else the run ends inside of it
        due = [
            each
            for each in self.trainer.lr_scheduler_configs
            if is_whole and self.update is not None and each.interval == "epoch"
            if state.epoch % each.frequency == 0
        ]
        for each in due:
            if not each.reduce_on_plateau:
                self._step_schedule(each, state)
        if "on_train_epoch_end" in self.hooks:
            self.module.on_train_epoch_end()
        carried = self.recall(state)
        state.metrics.update(carried.results())
        if is_whole:
            carried.reset()
        for each in due:
            if each.reduce_on_plateau:
                self._step_schedule(each, state)

    def call_of_stage(self, when: str, state: State[Any, Any]) -> None:
        """Call a hook of an evaluation: of validation, test or predict."""
        if (name := f"on_{stage_of(state)}_{when}") in self.hooks:
            getattr(self.module, name)()

    def end_evaluation(self, state: State[Any, Any]) -> None:
        """Write what was logged: under its own name also to the metrics of the training."""
        self.call_of_stage("epoch_end", state)
        carried = self.recall(state)
        is_main = state.name in ("", "val", "validation", "test")
        (training(state) if is_main else state).metrics.update(carried.results())
        carried.reset()
        self.call_of_stage("end", state)

    def tear_down(self, state: State[Any, Any]) -> None:
        """Call `teardown`."""
        self.module.teardown(stage="fit")


class _Hook:
    """A hook of the module as a function of the state."""

    def __init__(self, hook: Callable[[], object]) -> None:
        self.hook = hook
        self.__qualname__ = getattr(hook, "__qualname__", "hook")

    def __call__(self, state: State[Any, Any]) -> None:
        self.hook()


def _takes_index(step: Callable[..., Any]) -> bool:
    """True if a step takes the number of the batch, under whatever name.

    Raises:
        ValueError: It wants the iterator of the data, or is called once for each optimizer.
    """
    parameters = inspect.signature(step).parameters
    for name, instead in (
        ("dataloader_iter", "take the batch"),
        ("optimizer_idx", "set automatic_optimization = False, and step each of self.optimizers()"),
    ):
        if name in parameters:
            raise ValueError(f"{step.__qualname__}({name}) is not taken: {instead}")
    kinds = [each.kind for each in parameters.values()]
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(kind in places for kind in kinds) > 1 or inspect.Parameter.VAR_POSITIONAL in kinds


def _output(made: Any, *, needs_loss: bool) -> Any:
    """What `training_step` returned, as a dictionary whose loss records no gradients."""
    if made is None:
        return {}
    if isinstance(made, Tensor):
        return {"loss": made.detach()}
    if isinstance(made, Mapping) and (not needs_loss or isinstance(made.get("loss"), Tensor)):
        loss = {"loss": made["loss"].detach()} if "loss" in made else {}
        return {**made, **loss}
    raise TypeError(
        f"training_step returned a {type(made).__name__}; it needs the loss, a dictionary with "
        "'loss', or None to skip the batch"
    )


def _is_sharded(module: Module) -> bool:
    from ..modules import are_spread

    return are_spread(module.parameters())

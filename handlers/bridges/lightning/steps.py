"""What the engine of a LightningModule does with a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ....engine.state import State
from ....engine.update import MicroBatch, Update
from .hooks import Hooks, called_by_forward, takes_index
from .trainer import TrainerView, stage_of


class LightningSteps:
    """The process functions of `from_lightning`."""

    def __init__(
        self,
        model: Module,
        trainer: TrainerView,
        update: Update | None,
        prepare: Callable[[Any], Any] | None,
        autocast: torch.autocast | None,
    ) -> None:
        self.model = model
        """The module to call, or the wrapper around it."""
        self.hooks: Hooks = trainer.hooks
        self.module: Any = trainer.hooks.module
        self.update = update
        self.prepare = prepare
        self.autocast: Any = autocast or nullcontext()
        steps = ("training_step", "validation_step", "test_step", "predict_step")
        self.takes_index: dict[str, bool] = {
            name: takes_index(getattr(self.module, name)) for name in steps
        }

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
            with self.update.micro_batch(state) as micro:
                output = self._learn(state, self.update, micro, batch, index)
        self.hooks.call("on_train_batch_end", output, batch, index)
        return output

    def _learn(
        self, state: State[Any, Any], update: Update, micro: MicroBatch, batch: Any, index: int
    ) -> Any:
        loss, output = self._loss(batch, index)
        if loss is not None:
            self.hooks.call("on_before_backward", loss)
        if loss is not None and "on_after_backward" in self.hooks:
            micro.backward(loss)
            self.hooks.call("on_after_backward")
            micro.count(loss)
        else:
            again = (lambda: self._loss(batch, index)[0]) if update.needs_closure else None
            update(state, loss, closure=again)
        return output

    def _loss(self, batch: Any, index: int) -> tuple[Any, dict[str, Any]]:
        """The loss of a batch with its graph, and the output with a detached loss."""
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

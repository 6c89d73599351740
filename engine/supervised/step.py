"""What a supervised engine does with a batch, in training and in evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map_only

from .. import ranks
from ..checks import warn_if_it_drifts
from ..events import Events, Stage
from ..means import Means, mean_over_ranks, samples_of
from ..modules import modules_of, uncompiled
from ..state import State
from ..update import Update
from .split import Output, Split

if TYPE_CHECKING:
    from ..engine import Engine

PAIR = (tuple, list)


@dataclass(frozen=True, eq=False)
class Supervised:
    """The two process functions of `supervised`, and the handlers that belong to them."""

    model: Module
    loss_fn: Callable[[Any, Any], Tensor | None]
    update: Update
    prepare_batch: Callable[[Any], tuple[Any, Any]]
    move: Callable[[Any], Any] | None = None
    """Brings batches to the device; None for the CPU, where they are already."""
    autocast: torch.autocast | None = None
    split: Split | None = None

    def train(self, state: State[Any, Output], batch: Any) -> Output:
        """Forward pass, loss and update."""
        update, metrics, pair = self.update, state.metrics, self.prepare_batch(batch)
        closure = partial(self.loss_again, batch) if update.needs_closure else None
        if self.split is not None:  # a forward and a backward pass for each part
            output = self.split.take(state, pair, partial(self.forward, self.model, {}), update)
            update.advance(state, output.loss)
        elif update.sync is None:
            loss, output = self.forward(self.model, metrics, pair)
            update(state, loss, closure=closure)
        else:  # the forward pass, too, has to know whether ranks average gradients now or later
            with update.micro_batch(state):
                loss, output = self.forward(self.model, metrics, pair)
                update(state, loss, closure=closure)
        return output

    def evaluate(self, state: State[Any, Output], batch: Any) -> Output:
        """Forward pass and loss."""
        model = self.model
        if isinstance(model, DistributedDataParallel):  # its forward would wait for other ranks
            model = model.module
        with torch.inference_mode(), _without_sending_buffers(model):
            pair = self.prepare_batch(batch)
            if self.split is not None:
                forward = partial(self.forward, model, {})
                return self.split.take(state, pair, forward, self.update)
            return self.forward(model, state.metrics, pair)[1]

    def forward(
        self, model: Module, metrics: dict[str, Any], pair: tuple[Any, Any]
    ) -> tuple[Tensor | None, Output]:
        """The loss with its graph, and the output; the metric is the loss without its graph."""
        input, target = pair
        if self.move is not None:
            input, target = self.move((input, target))
        if self.autocast is None:
            prediction = model(input)
            loss = self.loss_fn(prediction, target)
        else:
            with self.autocast:
                prediction = model(input)
                loss = self.loss_fn(prediction, target)
        detached = None
        if loss is not None:
            if not (isinstance(loss, Tensor) and loss.ndim == 0):
                raise _not_a_scalar(loss)
            detached = metrics["loss"] = loss.detach()
        if isinstance(prediction, Tensor):
            return loss, Output(detached, prediction.detach(), target)
        prediction = tree_map_only(Tensor, Tensor.detach, prediction)
        return loss, Output(detached, prediction, target)

    def loss_again(self, batch: Any) -> Tensor:
        """The loss of a batch with the current weights, for an optimizer with a closure."""
        loss, _ = self.forward(self.model, {}, self.prepare_batch(batch))
        if loss is None:
            raise ValueError("the loss function gave a loss for this batch and then none")
        return loss

    def attach(self, engine: Engine[Any, Output]) -> None:
        """Look at the model's mode when a run starts; average the loss in evaluation."""
        if self.split is not None and self.split.most is None:
            engine.add(self.split)
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.check_mode)
        engine.evaluation.on(Events.STARTED, stage=Stage.MEASURE)(self.share_buffers)
        engine.evaluation.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.add_loss)
        engine.evaluation.on(Events.EPOCH_COMPLETED(last=True), stage=Stage.MEASURE)(self.mean_loss)

    def check_mode(self, state: State[Any, Any]) -> None:
        """Warn if the model was left in evaluation mode, or a teacher of the loss in training."""
        objects = state.engine.objects.values()
        for each in modules_of(self.loss_fn):
            if all(each is not other for other in objects):  # those are checked already
                warn_if_it_drifts("the module in the loss function", each)
        if not self.model.training:
            warnings.warn(
                "the model is in evaluation mode as training starts; call model.train() before, "
                "unless that is what you want",
                stacklevel=2,
            )

    def share_buffers(self, state: State[Any, Any]) -> None:
        """Give all ranks the buffers of the first one, as a forward pass in training does."""
        parallel = parallel_of(self.model)
        if parallel is not None and parallel.broadcast_buffers:
            with torch.no_grad():
                ranks.share(parallel.module.buffers())

    def add_loss(self, state: State[Any, Output]) -> None:
        """Add a batch's loss, weighted by its number of samples."""
        if (output := state.output) is not None and output.loss is not None:
            state.recall(self, Means).add("loss", output.loss, samples_of(output) or 1)

    def mean_loss(self, state: State[Any, Any]) -> None:
        """Replace the last batch's loss by the mean over all samples, on all ranks."""
        state.metrics.update(mean_over_ranks(state.recall(self, Means).sums))


def as_pair(batch: Any) -> tuple[Any, Any]:
    """The batch itself, if it is a pair of input and target."""
    if isinstance(batch, PAIR) and len(batch) == 2:
        return batch  # type: ignore[return-value]  # a list of two will do
    size = f" of {len(batch)}" if isinstance(batch, PAIR) else ""
    raise TypeError(
        f"supervised() got a batch that is a {type(batch).__name__}{size}; it needs a pair of "
        "input and target. Give prepare_batch=, a function that makes one of a batch"
    )


def parallel_of(model: Module) -> DistributedDataParallel | None:
    """The `DistributedDataParallel` that a model is, also inside torch.compile; or None."""
    model = uncompiled(model)
    return model if isinstance(model, DistributedDataParallel) else None


@contextmanager
def _without_sending_buffers(model: Module) -> Generator[None]:
    """Let a compiled model on several ranks send no buffers, so that no rank waits for others."""
    if (parallel := parallel_of(model)) is None:
        yield
        return
    sends: Any = parallel.require_forward_param_sync
    parallel.require_forward_param_sync = False
    try:
        yield
    finally:
        parallel.require_forward_param_sync = sends


def _not_a_scalar(loss: Any) -> ValueError:
    given = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
    return ValueError(f"the loss function returned {given}; it needs a scalar tensor, or None")

"""The engine of the usual case: inputs, targets, a model and a loss."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from .. import ranks
from ..engine import Engine
from ..events import Events, Stage
from ..means import Means, mean_over_ranks, samples_of
from ..modules.wrappers import uncompiled, unwrap
from ..state.state import State
from ..update.update import Update
from .device import Transfer, to_device
from .split import Split

PAIR = (tuple, list)
PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class Output(NamedTuple):
    """What a supervised engine makes of a batch; nothing here records gradients."""

    loss: Any
    """A tensor; None if the loss function gave none for this batch."""
    prediction: Any
    target: Any


def supervised(
    model: Module,
    optimizer: Optimizer,
    loss_fn: Callable[[Any, Any], Tensor | None],
    *,
    accumulate: int = 1,
    precision: str = "fp32",
    device: torch.device | str | None = None,
    prepare_batch: Callable[[Any], tuple[Any, Any]] | None = None,
    overlap_copies: bool = False,
    split: int | str | None = None,
    sync: str = "last",
    scaler: torch.amp.GradScaler | None = None,
    min_scale: float = 1e-4,
) -> Engine[Any, Output]:
    """Build the engine that trains `model` on pairs of input and target, and evaluates it.

    In training, each batch goes through the model, the loss and an `Update`; in evaluation,
    through the model and the loss alone. `state.metrics["loss"]` is the batch's detached loss;
    at the end of an evaluation it is the mean over all its samples, on all ranks.

    Args:
        model: Called as `model(input)`; moved to `device`. May be wrapped, as by
            `DistributedDataParallel`; `engine.objects["model"]` is the module inside.
        optimizer: Updates the model.
        loss_fn: Called as `loss_fn(prediction, target)`; a mean over the batch, or None to skip
            it. A module is moved to `device`; one of your own with weights or buffers is
            `engine.objects["loss_fn"]`.
        accumulate: Micro-batches of one optimizer step.
        precision: `"fp32"`, or `"bf16"` or `"fp16"` by `torch.autocast`, the latter with a
            gradient scaler, which is `engine.objects["scaler"]`.
        device: Where the model computes; where it is already, by default.
        prepare_batch: Makes the pair of input and target of what the data gives; by default that
            is a pair. Both are moved to the device afterwards, as by `to_device`.
        overlap_copies: Copy batches to the device while it computes the step before: see
            `Transfer`.
        split: The most samples of a batch that are at once on the device: a larger batch goes
            through the model in parts, which make one step of the same mean. `"auto"` halves the
            parts whenever memory runs out.
        sync: When gradients are averaged over ranks, as of `Update`; `"close"` if split is
            `"auto"`.
        scaler: The gradient scaler of `"fp16"`; torch's with its defaults, if there is none.
        min_scale: The run fails when overflows have brought its scale below this.

    Raises:
        TypeError: `model` is no module, or `loss_fn` is a class.
        ValueError: `precision` is none of the three, `optimizer` updates another model, or two
            arguments do not go together.

    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    >>> state = engine.run([(torch.ones(4, 2), torch.zeros(4, 1))], max_epochs=3)
    >>> state.step
    3
    """
    _check(model, optimizer, loss_fn)
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r}: needs one of {', '.join(PRECISIONS)}")
    if device is not None:
        model.to(device)
    place = torch.device(device) if device is not None else _device_of(model)
    objects: dict[str, Any] = {"model": unwrap(model), "optimizer": optimizer}
    if isinstance(loss_fn, Module) and _learns(loss_fn.to(place)):
        objects["loss_fn"] = loss_fn
    if precision == "fp16":
        scaler = torch.amp.GradScaler(place.type) if scaler is None else scaler
    elif scaler is not None:
        raise ValueError(f"a scaler is for precision='fp16'; precision is {precision!r}")
    update = Update(
        optimizer,
        model=model,
        accumulate=accumulate,
        scaler=scaler,
        min_scale=min_scale,
        sync="close" if split == "auto" and isinstance(model, DistributedDataParallel) else sync,
    )
    pair = Supervised(
        model=model,
        loss_fn=loss_fn,
        update=update,
        move=_mover(place, overlap_copies),
        autocast=None if precision == "fp32" else torch.autocast(place.type, PRECISIONS[precision]),
        prepare_batch=prepare_batch or _pair,
        split=None if split is None else Split.of(split, update),
    )
    if scaler is not None:
        objects["scaler"] = scaler
    engine: Engine[Any, Output] = Engine(pair.process, evaluate=pair.evaluate, objects=objects)
    engine.rehearsal = pair.rehearse
    return engine.add(pair.update, pair)


@dataclass(frozen=True, eq=False)
class Supervised:
    """The two process functions of `supervised`, and the handlers that belong to them."""

    model: Module
    loss_fn: Callable[[Any, Any], Tensor | None]
    update: Update
    move: Callable[[Any], Any] | None
    """Brings batches to the device; None for the CPU, where they are."""
    autocast: torch.autocast | None
    prepare_batch: Callable[[Any], tuple[Any, Any]]
    split: Split | None = None

    @property
    def process(self) -> Callable[[State[Any, Output], Any], Output]:
        """The simplest of the training functions that will do."""
        if self.split is not None:
            return self.train_in_parts
        return self.train if self.update.sync is None else self.train_on_ranks

    def attach(self, engine: Engine[Any, Output]) -> None:
        """Look at the model's mode when a run starts; average the loss in evaluation."""
        if self.split is not None and self.split.most is None:
            engine.add(self.split)
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.check_mode)
        engine.evaluation.on(Events.STARTED, stage=Stage.MEASURE)(self.share_buffers)
        engine.evaluation.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.add_loss)
        engine.evaluation.on(Events.EPOCH_COMPLETED(last=True), stage=Stage.MEASURE)(self.mean_loss)

    def train(self, state: State[Any, Output], batch: Any) -> Output:
        """Forward, loss and update."""
        prediction, target, loss = self._forward(self.model, self.prepare_batch(batch))
        if loss is None:
            self.update(state, None)
            detached = None
        else:
            detached = state.metrics["loss"] = loss.detach()
            if self.update.needs_closure:
                self.update(state, loss, closure=partial(self.loss_of, batch))
            else:
                self.update(state, loss)
        if isinstance(prediction, Tensor):
            return Output(detached, prediction.detach(), target)
        return Output(detached, tree_map_only(Tensor, Tensor.detach, prediction), target)

    def train_on_ranks(self, state: State[Any, Output], batch: Any) -> Output:
        """The same where gradients are averaged over ranks, once a window."""
        with self.update.micro_batch(state):
            return self.train(state, batch)

    def train_in_parts(self, state: State[Any, Output], batch: Any) -> Output:
        """The same, a part of the batch at a time."""
        assert self.split is not None
        prediction, target, loss = self.split.train(
            state, self.prepare_batch(batch), partial(self._forward_part, self.model), self.update
        )
        state.metrics["loss"] = loss
        self.update.advance(state, loss)
        return Output(loss, prediction, target)

    def loss_of(self, batch: Any) -> Tensor:
        """The loss of a batch again, for optimizers that ask for it."""
        loss = self._forward(self.model, self.prepare_batch(batch))[2]
        if loss is None:
            raise ValueError("the loss function gave a loss for this batch and then none")
        return loss

    def evaluate(self, state: State[Any, Output], batch: Any) -> Output:
        """Forward and loss."""
        model = self.model
        if isinstance(model, DistributedDataParallel):  # its forward would wait for other ranks
            model = model.module
        with torch.inference_mode(), _quiet(model):
            pair = self.prepare_batch(batch)
            if self.split is None:
                prediction, target, loss = self._forward(model, pair)
            else:
                forward = partial(self._forward_part, model)
                prediction, target, loss = self.split.evaluate(state, pair, forward)
        if loss is not None:
            state.metrics["loss"] = loss
        return Output(loss, prediction, target)

    def rehearse(self, state: State[Any, Any], batch: Any) -> None:
        """Fire the events of a training step."""
        self.update.rehearse(state)

    def check_mode(self, state: State[Any, Any]) -> None:
        """Warn of a model that was left in evaluation mode."""
        if not self.model.training:
            warnings.warn(
                "the model is in evaluation mode as training starts; call model.train() before, "
                "unless that is what you want",
                stacklevel=2,
            )

    def share_buffers(self, state: State[Any, Any]) -> None:
        """Evaluate one model on all ranks: the first one's, as its forward in training would."""
        parallel = _parallel(self.model)
        if parallel is not None and parallel.broadcast_buffers:
            with torch.no_grad():
                ranks.share(parallel.module.buffers())

    def add_loss(self, state: State[Any, Output]) -> None:
        """Add a batch's loss, as often as the batch has samples."""
        if (output := state.output) is not None and output.loss is not None:
            state.recall(self, Means).add("loss", output.loss, samples_of(output) or 1)

    def mean_loss(self, state: State[Any, Any]) -> None:
        """Put the mean over all samples, on all ranks, in the place of the last batch's loss."""
        state.metrics.update(mean_over_ranks(state.recall(self, Means).sums))

    def _forward(self, model: Module, pair: tuple[Any, Any]) -> tuple[Any, Any, Tensor | None]:
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
        if loss is not None and not (isinstance(loss, Tensor) and loss.ndim == 0):
            raise _no_loss(loss)
        return prediction, target, loss

    def _forward_part(self, model: Module, input: Any, target: Any) -> tuple[Any, Any, Tensor]:
        prediction, target, loss = self._forward(model, (input, target))
        if loss is None:
            raise ValueError("the loss function gave None for a part of a batch; split= needs all")
        return prediction, target, loss


def _parallel(model: Module) -> DistributedDataParallel | None:
    """What is on several ranks, if anything, inside torch.compile."""
    model = uncompiled(model)
    return model if isinstance(model, DistributedDataParallel) else None


@contextmanager
def _quiet(model: Module) -> Generator[None]:
    """Let a compiled forward pass on several ranks send no buffers, for which others would wait."""
    if (parallel := _parallel(model)) is None:
        yield
        return
    sends: Any = parallel.require_forward_param_sync
    parallel.require_forward_param_sync = False
    try:
        yield
    finally:
        parallel.require_forward_param_sync = sends


def _check(model: Module, optimizer: Optimizer, loss_fn: Any) -> None:
    if not isinstance(model, Module):
        raise TypeError(
            f"supervised() got a {type(model).__name__} as its model; it needs a Module"
        )
    if isinstance(loss_fn, type):
        raise TypeError(f"loss_fn is the class {loss_fn.__name__}; it needs to be made: write ()")
    if not isinstance(optimizer, Optimizer):
        return  # Update says what it needs
    own = {id(each) for each in model.parameters()}
    if own and own.isdisjoint(id(p) for group in optimizer.param_groups for p in group["params"]):
        raise ValueError(
            "the optimizer updates no parameter of this model: make it of model.parameters(), "
            "after whatever replaces them, such as wrapping"
        )


def _no_loss(loss: Any) -> Exception:
    given = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
    return ValueError(f"the loss function returned {given}; it needs a scalar tensor, or None")


def _device_of(model: Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _learns(loss_fn: Module) -> bool:
    """True if it has a state of its own; what torch's losses hold are settings: class weights."""
    return type(loss_fn).__module__ != "torch.nn.modules.loss" and bool(loss_fn.state_dict())


def _mover(device: torch.device, overlap_copies: bool) -> Callable[[Any], Any] | None:
    if device.type == "cpu":
        return None
    return Transfer(device) if overlap_copies else partial(to_device, device=device)


def _pair(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, PAIR) and len(batch) == 2:
        return batch  # type: ignore[return-value]  # a list of two will do
    size = f" of {len(batch)}" if isinstance(batch, PAIR) else ""
    raise TypeError(
        f"supervised() got a batch that is a {type(batch).__name__}{size}; it needs a pair of "
        "input and target. Give prepare_batch=, a function that makes one of a batch"
    )

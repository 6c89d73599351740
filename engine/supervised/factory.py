"""The engine of the usual case: inputs, targets, a model and a loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ..engine import Engine
from ..modules import unwrap
from ..update import Update, parameters_of
from .device import Transfer, to_device
from .split import Output, Split
from .step import Supervised, as_pair, parallel_of

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def supervised(
    model: Module,
    optimizer: Optimizer | Update,
    loss_fn: Callable[[Any, Any], Tensor | None],
    *,
    accumulate: int = 1,
    precision: str = "fp32",
    device: torch.device | str | Transfer | None = None,
    prepare_batch: Callable[[Any], tuple[Any, Any]] | None = None,
    split: int | str | None = None,
) -> Engine[Any, Output]:
    """Build the engine that trains `model` on pairs of input and target, and evaluates it.

    In training, each batch goes through the model, the loss and an `Update`; in evaluation,
    through the model and the loss alone. `state.metrics["loss"]` is the batch's detached loss;
    at the end of an evaluation it is the mean over all its samples, on all ranks.

    Args:
        model: Called as `model(input)`; moved to `device`. May be wrapped, as by
            `DistributedDataParallel`; `engine.objects["model"]` is the module inside.
        optimizer: Updates the model. For more settings than `accumulate`, give an `Update`:
            `Update(optimizer, model=model, accumulate=4, sync="close")`.
        loss_fn: Called as `loss_fn(prediction, target)`; a mean over the batch, or None to skip
            it. A module is moved to `device`; one of your own with weights or buffers is
            `engine.objects["loss_fn"]`.
        accumulate: Micro-batches of one optimizer step.
        precision: `"fp32"`, or `"bf16"` or `"fp16"` by `torch.autocast`, the latter with a
            gradient scaler: that of the `Update`, or torch's with its defaults. It is
            `engine.objects["scaler"]`.
        device: Where the model computes; where it is already, by default. `Transfer("cuda")`
            copies batches there while the step before is computed.
        prepare_batch: Makes the pair of input and target of what the data gives; by default that
            is a pair. Both are moved to the device afterwards, as by `to_device`.
        split: The most samples of a batch that are at once on the device: a larger batch goes
            through the model in parts, which make one step of the same mean. `"auto"` halves the
            parts whenever memory runs out; ranks then average gradients by `sync="close"`.

    Raises:
        TypeError: `model` is not a module, or `loss_fn` is a class.
        ValueError: `precision` is not one of the three, `optimizer` updates another model, or two
            arguments do not go together.

    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    >>> state = engine.run([(torch.ones(4, 2), torch.zeros(4, 1))], max_epochs=3)
    >>> state.step
    3
    """
    _check(model, optimizer, loss_fn, precision)
    transfer = device if isinstance(device, Transfer) else None
    place = device.device if isinstance(device, Transfer) else device
    if place is not None:
        model.to(place)
    else:
        place = next((each.device for each in model.parameters()), "cpu")
    place = torch.device(place)
    if isinstance(optimizer, Update):
        update = optimizer
        _check_update(update, model, accumulate, precision, split)
    else:
        update = Update(
            optimizer,
            model=model,
            accumulate=accumulate,
            scaler=torch.amp.GradScaler(place.type) if precision == "fp16" else None,
            sync="close" if split == "auto" and parallel_of(model) is not None else "last",
        )
    objects: dict[str, Any] = {"model": unwrap(model), "optimizer": update.optimizer}
    if isinstance(loss_fn, Module) and _learns(loss_fn.to(place)):
        objects["loss_fn"] = loss_fn
    if update.scaler is not None:
        objects["scaler"] = update.scaler
    step = Supervised(
        model=model,
        loss_fn=loss_fn,
        update=update,
        prepare_batch=prepare_batch or as_pair,
        move=None if place.type == "cpu" else transfer or partial(to_device, device=place),
        autocast=None if precision == "fp32" else torch.autocast(place.type, PRECISIONS[precision]),
        split=None if split is None else Split.of(split, update),
    )
    engine: Engine[Any, Output] = Engine(step.train, evaluate=step.evaluate, objects=objects)
    engine.rehearsal = lambda state, batch: update.rehearse(state)
    return engine.add(update, step)


def _check(model: Module, optimizer: Optimizer | Update, loss_fn: Any, precision: str) -> None:
    if not isinstance(model, Module):
        raise TypeError(
            f"supervised() got a {type(model).__name__} as its model; it needs a Module"
        )
    if isinstance(loss_fn, type):
        raise TypeError(f"loss_fn is the class {loss_fn.__name__}; it needs to be made: write ()")
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r}: needs one of {', '.join(PRECISIONS)}")
    if isinstance(optimizer, Update):
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, Optimizer):
        return  # Update says what it needs
    own = set(map(id, model.parameters()))
    if own and own.isdisjoint(map(id, parameters_of(optimizer))):
        raise ValueError(
            "the optimizer updates no parameter of this model: make it of model.parameters(), "
            "after whatever replaces them, such as wrapping"
        )


def _check_update(
    update: Update, model: Module, accumulate: int, precision: str, split: int | str | None
) -> None:
    """Refuse arguments that contradict a ready-made `Update`."""
    if accumulate != 1:
        raise ValueError(
            f"accumulate={accumulate} is a setting of the Update that was given: "
            f"Update(optimizer, model=model, accumulate={accumulate})"
        )
    if precision == "fp16" and update.scaler is None:
        raise ValueError(
            "precision='fp16' needs a gradient scaler: "
            "Update(optimizer, model=model, scaler=torch.amp.GradScaler(device))"
        )
    if precision != "fp16" and update.scaler is not None:
        raise ValueError(f"a scaler is for precision='fp16'; precision is {precision!r}")
    if parallel_of(model) is None:
        return
    if update.model is None:
        raise ValueError(
            "the model averages gradients over ranks, and the Update that was given does not know "
            "it: Update(optimizer, model=model)"
        )
    if split == "auto" and not update.averages_at_close:
        raise ValueError(
            "split='auto' may cut a batch into more parts on one rank than on another: "
            "Update(optimizer, model=model, sync='close')"
        )


def _learns(loss_fn: Module) -> bool:
    """True if the loss has a state; torch's losses hold only settings, like class weights."""
    return type(loss_fn).__module__ != "torch.nn.modules.loss" and bool(loss_fn.state_dict())

"""The engine of the usual case: inputs, targets, a model and a loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from ..compiling import Compile, CompiledForward, explained, replays
from ..engine import Engine
from ..means import Weight
from ..modules import unwrap
from ..outputs import Output
from ..update import Given, Optimizers, Update, one_of
from .batch import own_loss, pair_of, with_labels
from .check import PRECISIONS, check, check_compile, check_sharded_options, check_update
from .checked_means import is_a_sum
from .device import Transfer, way_to
from .loss_parts import Loss, takes_batch
from .split import check_split
from .step import Supervised


def supervised(
    model: Module,
    optimizer: Given | Update | None = None,
    loss_fn: Callable[..., Loss] | None = None,
    *,
    weight: Weight = None,
    accumulate: int = 1,
    precision: str = "fp32",
    device: torch.device | str | Transfer | None = None,
    prepare_batch: Callable[[Any], tuple[Any, Any]] | None = None,
    split: int | None = None,
    compile: Compile = False,
) -> Engine[Any, Output]:
    """Build the engine that trains `model` on pairs of input and target, and evaluates it.

    In training, each batch goes through the model, the loss and an `Update`; in evaluation,
    through the model and the loss alone. `state.metrics["loss"]` is the batch's detached loss;
    at the end of an evaluation it is the mean over all its samples, on all ranks.

    A batch is a pair of input and target, or a mapping of named inputs whose `"labels"` are the
    target. The input goes to the model by name if it is a mapping, `model(**input)`, in order if
    it is a tuple or a list, `model(*input)`, and as it is otherwise. A batch without a target, such
    as a tensor alone, gives `loss_fn` None in its place; samples are then counted by the input. An
    evaluation has predictions and no loss where `loss_fn` needs a target.

    Args:
        model: Moved to `device`. May be wrapped, as by `DistributedDataParallel`;
            `engine.objects["model"]` is the module inside.
        optimizer: Updates the model. For more settings than `accumulate`, give an `Update`:
            `Update(optimizer, model=model, accumulate=4, sync="close")`. None for an engine that
            only evaluates. Several, such as one for the matrices and one for the rest, are a list,
            `engine.objects["optimizer.0"]` and so on, or a dict of names: they make one step.
        loss_fn: Called as `loss_fn(output, target)`, or as `loss_fn(output, target, batch)` if it
            has three arguments without defaults; a mean over the batch, or None to skip
            it. With parts it is `(loss, {"ce": a, "kl": b})`, or `{"loss": loss, "ce": a}`:
            `state.metrics["ce"]` is then a mean as the loss is. A module is moved to `device`; one
            of your own with weights or buffers is `engine.objects["loss_fn"]`. Without it the model
            computes its loss, as those of Hugging Face do: it gets the labels too, and `loss` is in
            its output.
        weight: What the loss is a mean over, if not over the samples: a function of the `Output`
            that counts the targets of a batch, such as `count_tokens`. Then each target of a step
            and of an evaluation counts once. A loss function with `reduction == "sum"` is a sum
            over these targets.
        accumulate: Micro-batches of one optimizer step.
        precision: `"fp32"`, or `"bf16"` or `"fp16"` by `torch.autocast`, the latter with a
            gradient scaler: that of the `Update`, or torch's with its defaults. It is
            `engine.objects["scaler"]`.
        device: Where the model computes; where it is already, by default. On a GPU, batches are
            copied out of pinned memory by a `Transfer`, while the step before is computed; give
            one to change its settings.
        prepare_batch: Makes the pair of input and target of what the data gives. Both are moved to
            the device afterwards, as by `to_device`. None in the place of the target means that
            there is none.
        split: The most samples of a batch that are at once on the device: a larger batch goes
            through the model in parts, which make one step of the same mean.
        compile: True to compile the forward pass with the loss, the backward pass, clipping and
            the optimizer's step by `torch.compile`; or the arguments for it,
            `{"mode": "max-autotune"}`. Each size of a batch is compiled by itself.

    Raises:
        TypeError: `model` is not a module, `optimizer` is no optimizer, or `loss_fn` is a class.
        ValueError: `precision` is not one of the three, `optimizer` updates another model, or two
            arguments do not go together.

    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    >>> state = engine.run([(torch.ones(4, 2), torch.zeros(4, 1))], max_epochs=3)
    >>> state.step
    3
    """
    if isinstance(optimizer, list | tuple | Mapping):
        optimizer = one_of(optimizer)
    check(model, optimizer, loss_fn, weight, precision)
    check_sharded_options(model, optimizer, precision, split)
    is_given_batch = takes_batch(loss_fn, split, compile)
    is_sum = is_a_sum(loss_fn, weight)
    place = device.device if isinstance(device, Transfer) else device
    place = torch.device(place or next((each.device for each in model.parameters()), "cpu"))
    options = None if compile is False else check_compile(compile, model, optimizer, place)
    if device is not None:
        trained = {id(each) for each in model.parameters() if each.requires_grad}
        model.to(place)
        if optimizer is not None and not trained <= set(map(id, model.parameters())):
            raise ValueError(  # NPUs and TPUs; on its way to CUDA a model keeps its parameters
                f"device={str(device)!r}: the model's parameters are new ones on such a device, "
                "and the optimizer has the old ones; write model.to(device) above the line that "
                "makes the optimizer"
            )
    if optimizer is None:
        update = None
        if accumulate != 1:
            raise ValueError(
                f"accumulate={accumulate} is for training, which needs an optimizer: "
                "supervised(model, optimizer, loss_fn)"
            )
    elif isinstance(optimizer, Update):
        update = optimizer
        check_update(update, model, accumulate, precision)
    else:
        update = Update(
            optimizer,
            model=model,
            accumulate=accumulate,
            scaler=torch.amp.GradScaler(place.type) if precision == "fp16" else None,
            compile=compile,
        )
    if update is not None and update.compiled is not None and options is not None:
        update.compiled.is_replayed |= replays(options)  # the forward pass is a part of its step
    if split is not None:
        check_split(split, update)
    own = own_loss if loss_fn is None else loss_fn
    objects: dict[str, Any] = {"model": unwrap(model)}
    if update is not None:
        objects |= _named(update.optimizer)
    if isinstance(loss_fn, Module) and _learns(loss_fn.to(place)):
        objects["loss_fn"] = loss_fn
    if update is not None and update.scaler is not None:
        objects["scaler"] = update.scaler
    step = Supervised(
        model=model,
        loss_fn=own,
        update=update,
        prepare_batch=prepare_batch or (with_labels if loss_fn is None else pair_of),
        weight=weight,
        is_sum=is_sum,
        move=way_to(place, device),
        autocast=None if precision == "fp32" else torch.autocast(place.type, PRECISIONS[precision]),
        split=split,
        compiled=None if options is None else CompiledForward(options),
        takes_batch=is_given_batch,
    )
    train, evaluate = step.train, step.evaluate
    if options is not None:
        train, evaluate = explained(train), explained(evaluate)
    engine: Engine[Any, Output] = Engine(train, evaluate=evaluate, objects=objects)
    if update is None:
        return engine.add(step)
    engine.rehearsal = lambda state, batch: update.rehearse(state)
    return engine.add(update, step)


def _named(optimizer: Optimizer) -> dict[str, Optimizer]:
    """The optimizers of an update, by their names among the engine's objects."""
    if not isinstance(optimizer, Optimizers):
        return {"optimizer": optimizer}
    if taken := optimizer.named.keys() & {"model", "loss_fn", "scaler", "scheduler"}:
        raise ValueError(
            f"an optimizer is called {min(taken)!r}, which is the name of another object of the "
            'engine: choose names such as {"muon": muon, "adamw": adamw}'
        )
    return optimizer.named


def _learns(loss_fn: Module) -> bool:
    """True if the loss has a state; torch's losses hold only settings, like class weights."""
    return type(loss_fn).__module__ != "torch.nn.modules.loss" and bool(loss_fn.state_dict())

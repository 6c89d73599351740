"""Checks of the arguments of `supervised`: wrong order, type or combination."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from ..checks import refuse_wrappers, what_is
from ..compiling import Compile, options_of
from ..modules import fully_sharded, is_compiled, parallel_of, parameters_of
from ..names import advice
from ..update import Update

OF_PRECISIONS = {
    **dict.fromkeys(("bfloat16", "bf16-mixed", "bf16-true", "torch.bfloat16"), "precision='bf16'"),
    **dict.fromkeys(("16", "16-mixed", "float16", "half", "torch.float16"), "precision='fp16'"),
    **dict.fromkeys(
        ("32", "32-true", "float32", "no", "none", "torch.float32"), "precision='fp32'"
    ),
}
"""What to write for precisions of other libraries."""
PRECISIONS: dict[str, torch.dtype | None] = {
    "fp32": None,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


def check(model: Any, optimizer: Any, loss_fn: Any, weight: Any, precision: str) -> None:
    """Refuse arguments that are no model, optimizer and loss function, or do not fit.

    Raises:
        TypeError: One of them is of another kind, or a class that is still to be made.
        ValueError: The precision is unknown, or the optimizer updates another model.
    """
    _check_made(model, optimizer, loss_fn)
    _check_order(model, optimizer, loss_fn)
    if not isinstance(model, Module):
        raise TypeError(f"supervised() got {what_is(model)} as its model; it needs a Module")
    if not isinstance(optimizer, Optimizer | Update | None):
        raise TypeError(
            f"supervised() got {what_is(optimizer)} as its optimizer; it needs a "
            "torch.optim.Optimizer or an Update"
        )
    if loss_fn is not None and not callable(loss_fn):
        raise TypeError(
            f"supervised() got {what_is(loss_fn)} as its loss_fn; it needs a function of the "
            "model's output and the target"
        )
    if not (weight is None or callable(weight) or isinstance(weight, int | float)):
        raise TypeError(
            f"supervised(weight={weight!r}): needs a function of the output that counts what the "
            "loss is a mean over, such as camshaft.count_tokens, or a number"
        )
    if precision not in PRECISIONS:
        meant = advice(str(precision).lower(), PRECISIONS, OF_PRECISIONS)
        raise ValueError(f"precision={precision!r}: needs one of {', '.join(PRECISIONS)}{meant}")
    if isinstance(optimizer, Update):
        optimizer = optimizer.optimizer
    own = set(map(id, model.parameters()))
    if optimizer and own and own.isdisjoint(map(id, parameters_of(optimizer))):
        raise ValueError(
            "the optimizer updates no parameter of this model: make it of model.parameters(), "
            "after whatever replaces them, such as wrapping"
        )


def _check_made(model: Any, optimizer: Any, loss_fn: Any) -> None:
    given = {"model": model, "optimizer": optimizer, "loss_fn": loss_fn}
    for name, each in given.items():
        if isinstance(each, type):
            arguments = {"model": "...", "optimizer": "model.parameters(), lr=..."}.get(name, "")
            raise TypeError(
                f"{name} is the class {each.__name__}; supervised() needs an object of this class: "
                f"{_home(each)}{each.__name__}({arguments})"
            )


def _check_order(model: Any, optimizer: Any, loss_fn: Any) -> None:
    updates = (Optimizer, Update)
    if isinstance(model, updates) and isinstance(optimizer, Module):
        wrong = f"{what_is(model)} as its model and {what_is(optimizer)} as its optimizer"
    elif isinstance(loss_fn, updates) and not isinstance(optimizer, updates):
        wrong = f"{what_is(optimizer)} as its optimizer and {what_is(loss_fn)} as its loss_fn"
    else:
        return
    raise TypeError(f"supervised() got {wrong}; the order is supervised(model, optimizer, loss_fn)")


def _home(kind: type) -> str:
    """The usual prefix of a torch class in a script, such as `nn.`."""
    homes = {"torch.nn": "nn.", "torch.optim": "torch.optim."}
    return next((home for room, home in homes.items() if kind.__module__.startswith(room)), "")


def check_compile(
    compile: Compile, model: Module, optimizer: Optimizer | Update | None, place: torch.device
) -> dict[str, Any]:
    """The arguments for torch.compile.

    Raises:
        TypeError: `compile` is neither a bool nor a mapping.
        ValueError: It names what torch.compile does not know, or the model, the Update or the
            device that were given do not go with it.
    """
    options = options_of(compile, "supervised")
    if options.get("mode") == "reduce-overhead" and place.type == "cpu":
        raise ValueError(
            f"supervised(compile={compile!r}) replays CUDA graphs, which needs a GPU, and the "
            "model is on the CPU: device='cuda', or leave the mode out"
        )
    if is_compiled(model):
        raise ValueError(
            f"supervised(compile={compile!r}) got a model that is compiled already; leave "
            "torch.compile(model) or model.compile() out, so that the loss and the optimizer's "
            "step are compiled with it, or leave compile= out"
        )
    if isinstance(optimizer, Update) and optimizer.compiled is None:
        raise ValueError(
            f"compile={compile!r} compiles the optimizer's step too, which is a setting of the "
            f"Update that was given: Update(optimizer, model=model, compile={compile!r})"
        )
    return options


def check_update(update: Update, model: Module, accumulate: int, precision: str) -> None:
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
    if parallel_of(model) is not None and update.model is None:
        raise ValueError(
            "the model averages gradients over ranks, and the Update that was given does not know "
            "it: Update(optimizer, model=model)"
        )


def check_sharded_options(
    model: Module, optimizer: Optimizer | Update | None, precision: str, split: int | None
) -> None:
    """Refuse arguments that would hang or train wrongly on a model split by `fully_shard`.

    Raises:
        ValueError: The model is wrapped in a way that is not supported, or two arguments do not go
            together.
    """
    refuse_wrappers([model])
    if not fully_sharded([model]):
        return
    if split is not None:
        raise ValueError(
            f"split={split!r} may cut a batch into more parts on one rank than on another, and "
            "each forward pass of a sharded model needs all ranks; make the batches smaller and "
            "accumulate= more of them"
        )
    for computes in sorted({each for each in map(_computes_in, model.modules()) if each}, key=str):
        asked = PRECISIONS[precision]
        if asked not in (None, computes):
            raise ValueError(
                f"precision={precision!r}, and the model computes in {_name(computes)} by its "
                "MixedPrecisionPolicy: leave precision= out, or the policy"
            )
        is_scaled = precision == "fp16" or (isinstance(optimizer, Update) and optimizer.scaler)
        if computes is torch.float16 and optimizer is not None and not is_scaled:
            raise ValueError(
                "the model computes in float16 by its MixedPrecisionPolicy, so that small "
                "gradients become 0 without a scaler: add precision='fp16', which brings one"
            )


def _computes_in(module: Module) -> torch.dtype | None:
    """The type in which FSDP's policy lets a module compute; torch has no public name for it."""
    state = getattr(module, "_get_fsdp_state", lambda: None)()
    return getattr(getattr(state, "_mp_policy", None), "param_dtype", None)


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")

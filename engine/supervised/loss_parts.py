"""What a loss function takes and returns: the batch as a third argument, and a loss in parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..checks import what_is

Parts = Mapping[str, Tensor | float]
Loss = Tensor | tuple[Tensor | None, Parts] | Mapping[str, Tensor] | None
"""What a loss function may return: a loss, or one with its parts; None to skip the batch."""
TAKEN = ("loss", "lr", "grad_norm", "skipped_steps", "spikes")
"""What the engine and its usual handlers write into the metrics, some of them rarely."""
FORMS = (
    "loss_fn(output, target), loss_fn(output, target, batch), or none at all for a model that "
    "computes its loss"
)


def takes_batch(loss_fn: Callable[..., Any] | None, split: Any, compile: Any) -> bool:
    """True if a loss function has three arguments that must be given.

    >>> takes_batch(lambda output, target, batch: output.sum(), None, False)
    True
    >>> takes_batch(torch.nn.functional.mse_loss, None, False)
    False

    Raises:
        TypeError: It cannot be called with two nor with three arguments.
        ValueError: It takes the batch, and an argument of `supervised` does not go with that.
    """
    if loss_fn is None:
        return False
    try:
        signature = inspect.signature(loss_fn.forward if isinstance(loss_fn, Module) else loss_fn)
    except (TypeError, ValueError):  # written in C, without a signature
        return False
    if _fits(signature, 2):
        return False
    if not _fits(signature, 3):
        raise TypeError(f"supervised() got a loss_fn that takes {signature}; it needs {FORMS}")
    if split is not None or compile:
        name = f"split={split!r}" if split is not None else f"compile={compile!r}"
        raise ValueError(
            f"{name} does not go with a loss_fn of output, target and batch, since a batch may "
            "hold more than tensors; make what the loss needs a part of the target by "
            "prepare_batch=, and give a loss_fn of output and target"
        )
    return True


def _fits(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def split_loss(returned: Any) -> tuple[Any, dict[str, Tensor] | None]:
    """The loss, and its parts as scalars without graphs; no parts if a loss was returned alone.

    Raises:
        TypeError: A part is no single number, or its name is no string.
        ValueError: Its name is one that is written already, or is that of an evaluation.

    >>> split_loss((torch.tensor(3.0), {"ce": torch.tensor(2.0), "kl": 1}))
    (tensor(3.), {'ce': tensor(2.), 'kl': tensor(1.)})
    """
    if isinstance(returned, Mapping):
        if "loss" not in returned:
            raise ValueError(
                f"the loss function returned a {type(returned).__name__} with "
                f"{', '.join(map(repr, returned)) or 'nothing'}, without a 'loss'; it needs the "
                "whole under 'loss', beside its parts"
            )
        loss, named = returned["loss"], {n: p for n, p in returned.items() if n != "loss"}
    elif isinstance(returned, tuple):
        if len(returned) != 2 or not isinstance(returned[1], Mapping):
            raise TypeError(
                f"the loss function returned a tuple of {', '.join(map(what_is, returned))}; "
                'it needs a scalar tensor, a pair (loss, {"ce": a, "kl": b}), a mapping with '
                '"loss", or None'
            )
        loss, named = returned[0], dict(returned[1])
    else:
        return returned, None
    if not isinstance(loss, Tensor):  # skipped, with its parts; or to be refused
        return loss, None
    return loss, {name: _scalar(name, part, loss) for name, part in named.items()}


def _scalar(name: Any, part: Any, loss: Tensor) -> Tensor:
    if not isinstance(name, str):
        raise TypeError(f"a part of the loss has the name {name!r}; it needs a string")
    if name in TAKEN or "/" in name or not name:
        why = "is for evaluations, as in 'val/ce'" if "/" in name else "is written already"
        raise ValueError(f"a part of the loss has the name {name!r}, which {why}: give another")
    if isinstance(part, Tensor):
        if part.ndim or part.is_complex():
            raise TypeError(
                f"the part {name!r} of the loss is a tensor of shape {tuple(part.shape)} and "
                f"{part.dtype}; it needs one real number, as by .mean()"
            )
        number = part.detach().to(loss.device)
        return number if number.is_floating_point() else number.to(torch.float32)
    if not isinstance(part, int | float):
        raise TypeError(f"the part {name!r} of the loss is {what_is(part)}; it needs one number")
    wide = torch.promote_types(loss.dtype, torch.float32)
    return torch.full((), part, device=loss.device, dtype=wide)  # made there, which does not wait


def joined_parts(
    named: Sequence[Mapping[str, Tensor] | None], mean: Callable[[Any], Any]
) -> dict[str, Tensor] | None:
    """The means of the parts of a loss, over the pieces of a batch that `split=` has cut.

    Raises:
        ValueError: The pieces do not have the same names.
    """
    first = named[0] or {}
    if any((each or {}).keys() != first.keys() for each in named):
        raise ValueError(
            "split= cut a batch, and the loss function gave parts of other names for one piece "
            f"than for another: {[sorted(each or {}) for each in named]}; give the same for each"
        )
    if named[0] is None:
        return None
    return {name: mean([each[name] for each in named if each is not None]) for name in first}

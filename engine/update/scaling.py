"""Loss scaling for float16: when a step has overflowed, and when to give up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import ranks

if TYPE_CHECKING:
    from torch.amp import GradScaler
    from torch.optim import Optimizer

    from ..state.state import State


def has_overflowed(scaler: GradScaler, optimizer: Optimizer) -> bool:
    """True if unscaling found gradients that are not finite, on this rank or on another.

    The one look at the device that a step with a scaler takes.
    """
    # The scaler itself looks no sooner than in step(), when clipping has to be over, and there is
    # no public way to ask. After this, optimizer.step() is called without it, which saves its look.
    found = scaler._found_inf_per_device(optimizer).values()  # pyright: ignore
    return ranks.any_rank(bool(sum(infinite.item() for infinite in found)))


def back_off(scaler: GradScaler, least: float, state: State[Any, Any]) -> None:
    """Give up when the scale has become too small for anything but a fault.

    Raises:
        FloatingPointError: It is below `least`.
    """
    if (scale := scaler.get_scale()) < least:
        raise FloatingPointError(
            f"the loss scale has fallen to {scale:g} after step {state.step}, below "
            f"min_scale={least:g}: gradients overflow whatever the scale. Look for NaN in the "
            "data and in the loss, lower the learning rate, or train in bf16"
        )

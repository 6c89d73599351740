"""Optimizers inside others: wrapped by accelerate or Fabric, or several put together."""

from __future__ import annotations

from typing import Any

OURS = "Leave it out there, and write it where Camshaft saves and resumes it: supervised(..., "


def plain_optimizer(optimizer: Any) -> Any:
    """The optimizer inside the wrappers of accelerate and Fabric; other objects as they are.

    Raises:
        ValueError: Its steps depend on a count that only accelerate keeps.
    """
    kinds = {base.__name__ for base in type(optimizer).__mro__}
    if "AcceleratedOptimizer" in kinds:
        if (number := optimizer.gradient_state.num_steps) > 1:
            raise ValueError(
                f"Accelerator(gradient_accumulation_steps={number}) accumulates where Camshaft "
                "cannot see it: a checkpoint could fall into a window, and lose its gradients. "
                f"{OURS}accumulate={number}) or Update(optimizer, model=model, "
                f"accumulate={number})"
            )
        return optimizer.optimizer
    return optimizer.optimizer if "_FabricOptimizer" in kinds else optimizer


def optimizers_in(optimizer: Any) -> list[Any]:
    """The optimizers of which an `Update` has made one; the optimizer itself if it is one."""
    return [*getattr(optimizer, "together", (optimizer,))]


def parameters_of(optimizer: Any) -> list[Any]:
    """All parameters that an optimizer updates."""
    found = list[Any]()
    for group in optimizer.param_groups:  # with no comprehension, which would be a call
        found += group["params"]
    return found


def moves(scheduler: Any, optimizer: Any) -> bool:
    """True if a torch scheduler moves an optimizer, or one of several that make one step."""
    found = optimizers_in(plain_optimizer(optimizer))
    moved = optimizers_in(plain_optimizer(scheduler.optimizer))
    return any(one is other for one in found for other in moved)


def refuse_scaling(optimizer: Any) -> None:
    """Refuse, for an `Update`, a wrapped optimizer for which the wrapper's library scales losses.

    Raises:
        ValueError: Backward passes would have to go through this library.
    """
    kinds = {base.__name__ for base in type(optimizer).__mro__}
    if "AcceleratedOptimizer" in kinds and optimizer.scaler is not None:
        raise ValueError(
            "Accelerator(mixed_precision='fp16') scales losses, and the scale would not be saved. "
            f"{OURS}precision='fp16')"
        )
    precision: Any = optimizer._strategy.precision if "_FabricOptimizer" in kinds else None
    if type(precision).__name__ == "MixedPrecision":
        name = "bf16" if precision.precision.startswith("bf16") else "fp16"
        raise ValueError(
            f"Fabric(precision={precision.precision!r}) wants each backward pass by "
            f"fabric.backward, and an Update makes it itself. {OURS}precision={name!r})"
        )

"""Optimizers inside others: wrapped by accelerate or Fabric, or several put together."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from ..state import is_plain_tensor

SHORT = 64
"""The most elements of a container in which optimizers are looked for."""
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


@contextmanager
def in_place(thing: Any) -> Generator[None]:
    """Within a `with` block, a state is loaded into the groups and tensors that an optimizer has.

    `load_state_dict` of torch makes new ones. A script that holds a group from before, or a tensor
    that is its rate, would then set what no step reads. The thing may also be a schedule of torch,
    or an object that holds optimizers. If the block raises, nothing is done.
    """
    loads = getattr(type(thing), "load_state_dict", None)
    is_torchs = str(getattr(loads, "__module__", "")).startswith("torch.optim.")
    parts = [thing] if is_torchs else _optimizers_in(thing)
    before, taken = [{**vars(each)} for each in parts], dict[int, Any]()
    yield
    for part, old in zip(parts, before, strict=True):
        changed = {key: new for key, new in vars(part).items() if old.get(key) is not new}
        vars(part).update({key: _put(old.get(key), new, taken) for key, new in changed.items()})


def _put(old: Any, new: Any, taken: dict[int, Any], depth: int = 2) -> Any:
    """The old list, dict or tensor, filled with the new one's content; else the new value."""
    if type(new) is not type(old) or new is old:
        return new
    if hasattr(new, "untyped_storage") and is_plain_tensor(new) and _fits(old, new):
        # Two places may have held one tensor. If their new numbers differ, only the first keeps it.
        first = taken.setdefault(id(old), new)
        if first is new or first.equal(new):
            old.data.copy_(new)
            return old
    if depth and isinstance(new, dict):
        content = {key: _put(old.get(key), each, taken, depth - 1) for key, each in new.items()}
        old.clear()
        old.update(content)
        return old
    if depth and isinstance(new, list):
        pairs = zip(old, new, strict=False)
        old[:] = [*(_put(a, b, taken, depth - 1) for a, b in pairs), *new[len(old) :]]
        return old
    return new


def _fits(old: Any, new: Any) -> bool:
    """True if a tensor can take the numbers of another one, each in a place of its own."""
    one, other = ((each.shape, each.dtype, each.device, str(each.layout)) for each in (old, new))
    if one != other or one[3] != "torch.strided" or old.is_inference():
        return False
    return old.numel() == 1 or 0 not in old.stride()


def _optimizers_in(thing: Any) -> list[Any]:
    """The optimizers among a thing and what its attributes hold, and those that these wrap."""
    found, left = dict[int, Any](), [thing]
    while left:
        each = left.pop()
        is_wanted = each is thing or hasattr(each, "param_groups")
        if id(each) in found or not (is_wanted and hasattr(each, "__dict__")):
            continue
        found[id(each)] = each
        for value in (v for k, v in vars(each).items() if k not in ("param_groups", "state")):
            left.append(value)
            if type(value) in (dict, list, tuple) and len(value) <= SHORT:  # a longer one is data
                left += value.values() if isinstance(value, dict) else value
    return [each for each in found.values() if hasattr(each, "param_groups")]


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

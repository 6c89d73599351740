"""Modules that wrap other modules, and the names of weights without these wrappers."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

from torch.nn import DataParallel, Module
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

HIDDEN = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module")
"""The attributes in which torch.compile, FSDP, the checkpoint wrapper and Fabric keep a module."""
OUTER = ("_orig_mod", "_forward_module")
"""The attributes of wrappers that may be around a model that averages gradients over ranks."""


def inside(module: Module) -> str | None:
    """The name under which a wrapper holds the module that it wraps; None for other modules."""
    if isinstance(module, DistributedDataParallel | DataParallel | AveragedModel):
        return "module"
    # Not by hasattr: wrappers forward unknown attributes to the module inside.
    return next((name for name in HIDDEN if name in module._modules), None)  # pyright: ignore


def unwrap(model: Module) -> Module:
    """The module inside all wrappers: of torch.compile, data parallel, FSDP, averages.

    >>> from torch.nn import DataParallel, Linear
    >>> unwrap(AveragedModel(DataParallel(Linear(2, 1))))
    Linear(in_features=2, out_features=1, bias=True)
    """
    while name := inside(model):
        model = getattr(model, name)
    return model


def uncompiled(model: Module) -> Module:
    """The module inside torch.compile and Fabric's wrapper; other wrappers stay."""
    while (name := inside(model)) in OUTER:
        model = getattr(model, str(name))
    return model


def is_compiled(model: Module) -> bool:
    """True for a model that torch.compile or its own `compile()` has compiled, also in a wrapper.

    >>> from torch.nn import DataParallel, Linear
    >>> is_compiled(DataParallel(Linear(2, 1)))
    False
    """
    while model._compiled_call_impl is None:  # pyright: ignore
        if (name := inside(model)) is None:
            return False
        if name == "_orig_mod":
            return True
        model = getattr(model, name)
    return True


def plain_names(module: Module, names: Iterable[str]) -> dict[str, str]:
    """Map names in a module's `state_dict` to the names without wrappers, at any depth.

    >>> from torch.nn import DataParallel, Linear, Sequential
    >>> plain_names(Sequential(DataParallel(Linear(2, 1))), ["0.module.weight"])
    {'0.module.weight': '0.weight'}
    """
    seams = {
        without_wrappers(f"{path}.module".strip("."))
        for path, each in module.named_modules(remove_duplicate=False)
        if inside(each) == "module"
    }
    shown = {name: without_wrappers(name) for name in names}
    return {name: _without(seams, own) for name, own in shown.items()} if seams else shown


def without_wrappers(name: str) -> str:
    """The name of a weight without what compiling, sharding and Fabric put into it.

    >>> without_wrappers("_orig_mod.0._checkpoint_wrapped_module.weight")
    '0.weight'
    """
    return ".".join([part for part in name.split(".") if part not in HIDDEN])


def _without(seams: set[str], name: str) -> str:
    parts = name.split(".")
    paths = (".".join(parts[: number + 1]) for number in range(len(parts)))
    return ".".join(part for part, path in zip(parts, paths, strict=True) if path not in seams)


def parallel_of(model: Module) -> DistributedDataParallel | None:
    """The model if it is a `DistributedDataParallel`, also inside torch.compile; else None."""
    model = uncompiled(model)
    return model if isinstance(model, DistributedDataParallel) else None


@contextmanager
def without_sending_buffers(model: Module) -> Generator[None]:
    """Let a model on several ranks broadcast no buffers, so that no rank waits for the others."""
    if (parallel := parallel_of(model)) is None:
        yield
        return
    sends: Any = parallel.require_forward_param_sync
    parallel.require_forward_param_sync = False
    try:
        yield
    finally:
        parallel.require_forward_param_sync = sends

"""Activation checkpointing: activations are recomputed, which takes less memory and more time."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch.nn import Module
from torch.utils.checkpoint import checkpoint

from .wrappers import unwrap


def checkpoint_activations(model: Module, *patterns: str) -> list[str]:
    """Keep only the inputs of these parts of a model, and compute the rest again for the gradient.

    The gradients are the same to the last bit, random numbers of torch and running statistics
    included. Names of weights stay as they are, and so does the model's class. Call it before
    `torch.compile` and `DistributedDataParallel`.

    Chen, Xu, Zhang and Guestrin, 2016: Training deep nets with sublinear memory cost.

    Args:
        model: Changed in place.
        patterns: Names of parts, as in `model.named_modules()`, with `*`, `?` and `[...]` as in
            file names. If a part and a part inside it match, the outer one is taken. A list of
            modules is not a part, so `"blocks.*"` means each block.

    Returns:
        The names of the parts.

    Raises:
        ValueError: A pattern matches no part.

    >>> from torch.nn import Linear, ModuleDict, Sequential
    >>> model = ModuleDict({"stem": Linear(4, 4), "blocks": Sequential(Linear(4, 4), Linear(4, 4))})
    >>> checkpoint_activations(model, "blocks.*")
    ['blocks.0', 'blocks.1']
    """
    named = {name: each for name, each in unwrap(model).named_modules() if name and _runs(each)}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in named):
            raise ValueError(
                f"checkpoint_activations({pattern!r}): no part of the model has such a name; the "
                f"parts are {', '.join(named) or 'none'}"
            )
    chosen: list[str] = []
    for name, part in named.items():
        is_meant = any(fnmatchcase(name, pattern) for pattern in patterns)
        if is_meant and not any(name.startswith(f"{outer}.") for outer in chosen):
            chosen.append(name)
            if getattr(part.forward, "func", None) is not _recomputed:
                # A partial over the module: in a deep copy, for averages, it refers to the copy.
                part.forward = partial(_recomputed, part, part.forward)
    return chosen


def _runs(module: Module) -> bool:
    """False for containers, which hold modules and are never called themselves."""
    return type(module).forward is not Module.forward


def _recomputed(part: Module, forward: Any, /, *inputs: Any, **options: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs, **options)
    call = partial(forward, **options)
    if torch.compiler.is_compiling():  # allows no context_fn; updates statistics only once anyway
        return checkpoint(call, *inputs, use_reentrant=False)
    contexts = lambda: (nullcontext(), _unobserved(part))  # noqa: E731
    return checkpoint(call, *inputs, use_reentrant=False, context_fn=contexts)


@contextmanager
def _unobserved(part: Module) -> Generator[None]:
    """Let BatchNorm update copies of its statistics: the originals include this batch already."""
    norms = [each for each in part.modules() if getattr(each, "track_running_stats", False)]
    kept = [
        (norm, name, buffer)
        for norm in norms
        if norm.training
        for name, buffer in norm.named_buffers(recurse=False)
    ]
    for norm, name, buffer in kept:
        setattr(norm, name, buffer.clone())
    try:
        yield
    finally:
        for norm, name, buffer in kept:
            setattr(norm, name, buffer)

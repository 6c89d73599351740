"""Activation checkpointing: activations are recomputed, which takes less memory and more time."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Self

import torch
from torch.nn import Module
from torch.utils.checkpoint import checkpoint

from ..state import get_state, global_generators, set_state
from .known import generators_in
from .selective import Keep, Selection
from .wrappers import unwrap


def checkpoint_activations(model: Module, *patterns: str, keep: Keep | None = None) -> list[str]:
    """Keep only the inputs of these parts of a model, and compute the rest again for the gradient.

    The gradients are the same to the last bit, running statistics included, and random numbers of
    torch, NumPy and Python, and of generators that are attributes of the part's modules. Names of
    weights stay as they are, and so does the model's class. Call it before `torch.compile` and
    `DistributedDataParallel`. If it is called again for a part, the last call counts.

    Chen, Xu, Zhang and Guestrin, 2016: Training deep nets with sublinear memory cost. Korthikanti
    et al., 2022: Reducing activation recomputation in large transformer models, for `keep`.

    Args:
        model: Changed in place.
        patterns: Names of parts, as in `model.named_modules()`, with `*`, `?` and `[...]` as in
            file names. If a part and a part inside it match, the outer one is taken. A list of
            modules is not a part, so `"blocks.*"` means each block.
        keep: Operations whose results are kept too: `"matmul"` for matrix products and fused
            attention, a list such as `[torch.ops.aten.mm.default]`, or a policy as in
            `torch.utils.checkpoint.create_selective_checkpoint_contexts`. What draws random
            numbers, casts, or changes a tensor in place is computed again in any case.

    Returns:
        The names of the parts.

    Raises:
        ValueError: A pattern matches no part, or `keep` is another word.
        TypeError: A pattern is no text, or `keep` none of these; later, a policy gives no answer.
        RuntimeError: With `keep`, a second backward pass through the same graph.

    >>> from torch.nn import Linear, ModuleDict, Sequential
    >>> model = ModuleDict({"stem": Linear(4, 4), "blocks": Sequential(Linear(4, 4), Linear(4, 4))})
    >>> checkpoint_activations(model, "blocks.*")
    ['blocks.0', 'blocks.1']
    """
    selection = None if keep is None else Selection(keep)
    named = {name: each for name, each in unwrap(model).named_modules() if name and _runs(each)}
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(
                f"checkpoint_activations({pattern!r}): needs names of parts, one by one, such as "
                "checkpoint_activations(model, 'blocks.*', 'head')"
            )
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
            forward: Any = part.forward
            if getattr(forward, "func", None) is _recomputed:
                forward = forward.args[1]
            # A partial over the module: in a deep copy, for averages, it refers to the copy.
            part.forward = partial(_recomputed, part, forward, selection)
    return chosen


def _runs(module: Module) -> bool:
    """False for containers, which hold modules and are never called themselves."""
    return type(module).forward is not Module.forward


def _recomputed(
    part: Module, forward: Any, selection: Selection | None, /, *inputs: Any, **options: Any
) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs, **options)
    call = partial(forward, **options)
    if torch.compiler.is_compiling():  # updates statistics only once anyway
        if selection is None:
            return checkpoint(call, *inputs, use_reentrant=False)
        return checkpoint(call, *inputs, use_reentrant=False, context_fn=selection.compiled)

    def contexts() -> tuple[Any, Any]:
        inner, again = selection.contexts() if selection else (nullcontext(), nullcontext())
        first = _First(part, inner)
        return first, _Again(part, first, again)

    return checkpoint(call, *inputs, use_reentrant=False, context_fn=contexts)


class _First(ExitStack):
    """Notes what a part draws from generators that torch does not put back."""

    def __init__(self, part: Module, context: AbstractContextManager[Any]) -> None:
        super().__init__()
        self._part, self._context = part, context
        self.drawn: list[tuple[Any, Any]] = []
        """The generators that the pass has moved, and their states before it."""

    def __enter__(self) -> Self:
        ours = [each for each in global_generators() if each is not torch.default_generator]
        own = generators_in({"": self._part}).values()
        self.callback(self._note, [(each, get_state(each)) for each in (*ours, *own)])
        self.enter_context(self._context)
        return super().__enter__()

    def _note(self, before: list[tuple[Any, Any]]) -> None:
        self.drawn = [(each, state) for each, state in before if get_state(each) != state]


class _Again(ExitStack):
    """Lets a part draw as in its first pass, and BatchNorm update copies of its statistics.

    The originals include this batch already; generators go on behind it from where they are.
    """

    def __init__(self, part: Module, first: _First, context: AbstractContextManager[Any]) -> None:
        super().__init__()
        self._part, self._first, self._context = part, first, context

    def __enter__(self) -> Self:
        for generator, state in self._first.drawn:
            self.callback(set_state, generator, get_state(generator))
            set_state(generator, state)
        for norm in self._part.modules():
            if norm.training and getattr(norm, "track_running_stats", False):
                for name, buffer in list(norm.named_buffers(recurse=False)):
                    self.callback(setattr, norm, name, buffer)
                    setattr(norm, name, buffer.clone())
        try:
            self.enter_context(self._context)  # after the copies, which are no part of the pass
        except BaseException:
            self.close()
            raise
        return super().__enter__()

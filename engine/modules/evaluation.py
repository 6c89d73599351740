"""Evaluation without side effects, also with the weights of another module.

An optimizer with two modes, such as a schedule-free one, puts the weights to evaluate into the
model by `eval()`, and those to train by `train()`, except for rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from copy import deepcopy
from inspect import signature
from typing import TYPE_CHECKING, Any

from .. import ranks
from ..data import is_read
from ..state import capture_generators, restore_generators, seed_all, seed_of_rank
from .known import all_modules, generators_in, is_module
from .prepared import optimizers_in, parameters_of

if TYPE_CHECKING:
    from ..engine import Engine
    from ..state import State


Switched = tuple[Any, dict[str, Any], Callable[[], None]]
"""A module, attributes of it to be put back, and what puts back its weights."""

_kept: list[Any] = []
"""Of each evaluation under way: the buffers that it puts back."""


@contextmanager
def untouched(
    objects: Mapping[str, Any],
    data: object,
    seed: int | None = None,
    generators: Mapping[str, Any] | None = None,
) -> Generator[None]:
    """Put modules into evaluation mode and record no gradients, then restore everything.

    Restored are each module's own `training` flag and buffers, the rows of embeddings with
    `max_norm`, the gradient mode, and every random number generator, including those inside `data`
    and the objects; with a buffer that was assigned anew, such as a longer table, also plain
    attributes of its module.

    Args:
        objects: The engine's objects, which are or hold modules.
        data: The data that is read inside.
        seed: Seeds the generators inside, except those of `data`; each rank draws its own
            numbers, as by `seed_everything(seed, per_rank=True)`.
        generators: By name: the generators that are drawn from inside; by default, the objects'.
    """
    torch = sys.modules.get("torch")
    modules = all_modules(objects.values())
    flags = [module.training for module in modules]
    found: Any = None
    if any(module._buffers for module in modules):
        from .places import Buffers  # which needs torch

        found = Buffers(modules, settings=True)
    _kept.append(found)
    # An embedding with `max_norm` scales the rows that it looks up, also without gradients.
    put_back = [_copied(m.parameters()) for m in modules if getattr(m, "max_norm", None)]
    named = generators_in(objects) if generators is None else generators
    rng = capture_generators(data, named)
    switched: list[Switched] = []
    # A loader's own iterator, with its persistent workers and position, serves one pass only.
    opened = getattr(data, "_iterator", None)
    is_shared = hasattr(data, "_iterator") and is_read(data)
    try:
        if is_shared:
            data._iterator = None  # type: ignore[attr-defined]
        switched = _switched(modules)
        for module in modules:
            module.training = False
        if seed is not None:
            seed_all(seed_of_rank(seed, ranks.data_rank()))
        with torch.no_grad() if torch else nullcontext(), _calling_parts(modules):
            yield
    except BaseException:
        with suppress(Exception):  # a failed device must not hide its first error
            restore_generators(rng, data, named)
        raise
    else:
        restore_generators(rng, data, named)
    finally:
        if (buffers := _kept.pop()) is not None:
            buffers.put_back()
        for each in put_back:
            each()
        for module, settings, weights in switched:
            weights()
            vars(module).update(settings)
        for module, _, _ in switched:
            module.train()
        for module, training in zip(modules, flags, strict=True):
            module.training = training
        if is_shared:
            data._iterator = opened  # type: ignore[attr-defined]


@contextmanager
def _calling_parts(modules: Iterable[Any]) -> Generator[None]:
    """Let encoder layers call their parts if one is not torch's own, such as a LoRA.

    In evaluation mode torch hands the weights of the parts to one function, and calls none of them.
    """
    torch = sys.modules.get("torch")
    kinds = torch.nn.TransformerEncoderLayer if torch else ()
    parts = [part for each in modules if isinstance(each, kinds) for part in each.children()]
    if torch is None or all(map(_is_plain, parts)):
        yield
        return
    was = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was)


def _is_plain(part: Any) -> bool:
    """True for what the one function computes; it takes `GELU("tanh")` for `GELU()`."""
    is_torchs = type(part).__module__.startswith("torch.nn.modules.")
    return is_torchs and getattr(part, "approximate", "none") == "none"


def _switched(modules: Iterable[Any]) -> list[Switched]:
    """Call `train(False)`, as `eval()` does, of modules that have a `train` of their own.

    It drops what evaluations have cached (gpytorch, LeViT of timm), or joins statistics (lightly).
    """
    before: list[Switched] = []
    for module in modules:
        own = type(module).train
        is_own = own.__module__ != "torch.nn.modules.module"
        if is_own and "mode" in signature(own).parameters:
            if not module.training:  # evaluated by the script, perhaps with other weights
                module.train()
            weights = _copied(module.parameters(recurse=False))
            before.append((module, {**vars(module), "training": False}, weights))
    for module, _, _ in before:
        module.train(False)
    return [
        (module, {n: v for n, v in was.items() if vars(module).get(n) is not v}, weights)
        for module, was, weights in before
    ]


def keep_shared() -> None:
    """Let the evaluation under way leave the buffers, which ranks now share, as they are then.

    They may be lent ones, so that their values of now are not those of the model afterwards.
    """
    if _kept:
        _kept[-1] = None


@contextmanager
def using(
    weights: str | Mapping[str, str], objects: Mapping[str, Any], lent: dict[Any, Any]
) -> Generator[None]:
    """Let modules hold other modules' weights inside a `with` block: see `Engine.using`."""
    pairs = {"model": weights} if isinstance(weights, str) else weights
    for name in [*pairs, *pairs.values()]:
        if not hasattr(objects.get(name), "parameters"):
            known = [name for name, each in objects.items() if hasattr(each, "parameters")]
            raise ValueError(
                f"weights={weights!r}: needs {name!r} to be a module among the engine's objects; "
                f"those are {', '.join(map(repr, known)) or 'none'}. Averages come from EMA or "
                "SWA; for a module that is not called 'model', write weights={'generator': 'ema'}"
            )
    with ExitStack() as stack:
        if pairs:
            from .sharded import fully_sharded, reshard  # which need torch
            from .weights import lend

            managed = fully_sharded(objects.values())
            reshard(managed)
            for borrower, owner in pairs.items():
                stack.enter_context(lend(objects[borrower], objects[owner], lent))
            stack.callback(reshard, managed)  # so that training does not use lent weights
        yield


def holding_saved(engine: Engine[Any, Any], checkpoint: Any) -> AbstractContextManager[None]:
    """Let an engine's modules hold the weights of a checkpoint: see `Engine.evaluate`.

    Raises:
        ValueError: No handler of the engine reads checkpoints.
    """
    if not (keepers := _keepers(engine)):
        raise ValueError(
            f"checkpoint={str(checkpoint)!r}: needs a Checkpoint among the engine's handlers, "
            "which reads it: engine.add(Checkpoint(directory)). An engine that only evaluates "
            "writes nothing there"
        )
    holding: AbstractContextManager[None] = keepers[0].holding(engine.objects, checkpoint)
    return holding


def warn_of_unloaded(engine: Engine[Any, Any], checkpoint: Any) -> None:
    """Let handlers warn if an evaluation uses weights that this process has not loaded."""
    for each in _keepers(engine) if checkpoint is None else ():
        each.warn_of_unloaded(engine)


def _keepers(engine: Engine[Any, Any]) -> list[Any]:
    """The handlers that keep weights, such as `Checkpoint`; handlers that resume come first."""
    found = [each for each in engine.handlers.values() if hasattr(each, "warn_of_unloaded")]
    return sorted(found, key=lambda each: not each.resume)


@contextmanager
def evaluating(engine: Engine[Any, Any]) -> Generator[None]:
    """Let the model hold the weights to evaluate; afterwards, each bit is as it was before."""
    found = [] if engine.lent else _with_modes(engine)  # lent weights are for evaluation already
    if not found:
        yield
        return
    from .sharded import fully_sharded, reshard

    reshard(fully_sharded(engine.objects.values()))
    with untouched({}, None), ExitStack() as undo:  # some round at random
        for each in found:
            before = _mode(each)
            undo.callback(_copied(parameters_of(each)))
            each.eval()
            if _mode(each) != before:  # else the script has done it
                undo.callback(each.train)
        yield


def switch(engine: Engine[Any, Any], *, training: bool) -> None:
    """Let the optimizers take the other mode, and the model keep its weights."""
    for each in _with_modes(engine):
        put_back = _copied(parameters_of(each))
        each.train() if training else each.eval()
        put_back()


def begin_training(state: State[Any, Any], *, is_loaded: bool) -> None:
    """Call `train()`: before a load those that have no state yet, and may not save their mode."""
    moments = state.control.moments
    if state.training and moments is not None and moments.rehearsal is None:
        for each in _with_modes(state.engine):
            if is_loaded or not getattr(each, "state", None):
                each.train()


def evaluate_saved(optimizer: Any, read: Callable[[], Any]) -> None:
    """Make weights to evaluate of saved ones to train, which the model holds."""
    if has_modes(optimizer):
        shared = {id(each): each for each in parameters_of(optimizer)}
        other = object.__new__(type(optimizer))
        vars(other).update(deepcopy(vars(optimizer), shared))
        other.state.clear()
        other.train()  # moves nothing without a state
        other.load_state_dict(read())
        other.eval()


def has_modes(thing: object) -> bool:
    """True for an optimizer whose weights to train may differ from those to evaluate."""
    if not callable(getattr(thing, "train", None)) or not callable(getattr(thing, "eval", None)):
        return False
    kinds = {base.__name__ for base in type(thing).__mro__}
    # That of accelerate has both methods, whatever it holds.
    return _has_groups(thing) and not is_module(thing) and "AcceleratedOptimizer" not in kinds


def _with_modes(engine: Engine[Any, Any]) -> list[Any]:
    """Those that are objects or handlers of an engine, or attributes of one; each once."""
    things = (*engine.objects.values(), *engine.handlers.values())
    held = [one for each in things for one in (each, *getattr(each, "__dict__", {}).values())]
    held = [each for each in held if hasattr(each, "param_groups")]  # a proxy has all names
    found = [one for each in held if _has_groups(each) for one in optimizers_in(each)]
    # By a parameter: a wrapper has those of the optimizer inside, which comes later.
    return [*{id(parameters_of(each)[0]): each for each in found if has_modes(each)}.values()]


def _has_groups(thing: object) -> bool:
    return isinstance(getattr(thing, "param_groups", None), Sequence)


def _mode(optimizer: Any) -> list[Any]:
    """What `eval()` changes unless it was called before: a flag somewhere, or the weights."""
    places = (getattr(optimizer, "__dict__", {}), *optimizer.param_groups)
    flags = [each for one in places for each in one.values() if isinstance(each, bool | int | str)]
    return [*flags, *(each._version for each in parameters_of(optimizer))]


def _copied(weights: Iterable[Any]) -> Callable[[], None]:
    """Copy weights; return a function that puts them back."""
    from .tensors import local

    tensors = [each for each in weights if not hasattr(each, "materialize")]
    copies = [local(each).detach().clone() for each in tensors]

    def put_back() -> None:
        for each, copy in zip(tensors, copies, strict=True):
            local(each).data.copy_(copy)

    return put_back

"""Optimizers with two modes, such as schedule-free ones: weights to train, weights to evaluate.

`eval()` puts those to evaluate into the model, and `train()` those to train, except for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from .evaluation import untouched
from .known import is_module
from .prepared import optimizers_in

if TYPE_CHECKING:
    from ..engine import Engine
    from ..state import State


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
            undo.callback(_copied(each))
            each.eval()
            if _mode(each) != before:  # else the script has done it
                undo.callback(each.train)
        yield


def switch(engine: Engine[Any, Any], *, training: bool) -> None:
    """Let the optimizers take the other mode, and the model keep its weights."""
    for each in _with_modes(engine):
        put_back = _copied(each)
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
        shared = {id(each): each for each in _parameters(optimizer)}
        other = object.__new__(type(optimizer))
        vars(other).update(deepcopy(vars(optimizer), shared))
        other.state.clear()
        other.train()  # moves nothing without a state
        other.load_state_dict(read())
        other.eval()


def has_modes(thing: object) -> bool:
    """True for an optimizer whose weights to train may differ from those to evaluate."""
    kinds = {base.__name__ for base in type(thing).__mro__}
    if not _has_groups(thing) or is_module(thing) or "AcceleratedOptimizer" in kinds:
        return False  # that of accelerate has both methods, whatever it holds
    return all(callable(getattr(thing, each, None)) for each in ("train", "eval"))


def _with_modes(engine: Engine[Any, Any]) -> list[Any]:
    """Those that are objects or handlers of an engine, or attributes of one; each once."""
    things = (*engine.objects.values(), *engine.handlers.values())
    held = [one for each in things for one in (each, *getattr(each, "__dict__", {}).values())]
    found = [one for each in held if _has_groups(each) for one in optimizers_in(each)]
    # By a parameter: a wrapper has those of the optimizer inside, which comes later.
    return [*{id(_parameters(each)[0]): each for each in found if has_modes(each)}.values()]


def _has_groups(thing: object) -> bool:
    return isinstance(getattr(thing, "param_groups", None), Sequence)


def _parameters(optimizer: Any) -> list[Any]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _mode(optimizer: Any) -> list[Any]:
    """What `eval()` changes unless it was called before: a flag somewhere, or the weights."""
    places = (getattr(optimizer, "__dict__", {}), *optimizer.param_groups)
    flags = [each for one in places for each in one.values() if isinstance(each, bool | int | str)]
    return [*flags, *(each._version for each in _parameters(optimizer))]


def _copied(optimizer: Any) -> Callable[[], None]:
    """Copy the weights; return a function that puts them back."""
    from .tensors import local

    tensors = [each for each in _parameters(optimizer) if not hasattr(each, "materialize")]
    copies = [local(each).detach().clone() for each in tensors]

    def put_back() -> None:
        for each, copy in zip(tensors, copies, strict=True):
            local(each).data.copy_(copy)

    return put_back

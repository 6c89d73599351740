"""Optimizers with two modes, such as schedule-free ones: weights to train, weights to evaluate.

Their `eval()` puts the weights to evaluate into the model, and `train()` those to train, except for
rounding.
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


@contextmanager
def at_evaluation_point(engine: Engine[Any, Any]) -> Generator[None]:
    """Let the model hold the weights to evaluate; afterwards, each bit is as it was before."""
    found = [] if engine.lent else with_modes(engine)  # lent weights are for evaluation already
    if not found:
        yield
        return
    from .sharded import fully_sharded, reshard

    reshard(fully_sharded(engine.objects.values()))
    with untouched({}, None), ExitStack() as undo:  # some round at random
        for each in found:
            before, put_back = _mode(each), _kept(each)
            undo.callback(put_back)
            each.eval()
            if _mode(each) != before:  # else the script has done it
                undo.callback(each.train)
        yield


def switch(engine: Engine[Any, Any], *, training: bool) -> None:
    """Let the optimizers take the other mode, and the model keep its weights."""
    for each in with_modes(engine):
        put_back = _kept(each)
        each.train() if training else each.eval()
        put_back()


def begin_training(engine: Engine[Any, Any], *, is_loaded: bool) -> None:
    """Call `train()`: before a load those that have no state yet, and may not save their mode."""
    for each in with_modes(engine):
        if is_loaded or not _state(each):
            each.train()


def with_modes(engine: Engine[Any, Any]) -> list[Any]:
    """The optimizers with modes that are objects or handlers of an engine, or attributes of one."""
    found = dict[int, Any]()
    for thing in (*engine.objects.values(), *engine.handlers.values()):
        for held in (thing, *getattr(thing, "__dict__", {}).values()):
            for each in optimizers_in(held) if _has_groups(held) else ():
                if has_modes(each):  # known by a parameter, as a wrapper has those of its inner one
                    found[id(_parameters(each)[0])] = each
    return list(found.values())


def has_modes(optimizer: Any) -> bool:
    """True for an optimizer whose weights to train differ from those to evaluate."""
    kinds = {base.__name__ for base in type(optimizer).__mro__}
    if not _has_groups(optimizer) or is_module(optimizer) or "AcceleratedOptimizer" in kinds:
        return False  # that of accelerate has both methods, whatever it holds
    return all(callable(getattr(optimizer, each, None)) for each in ("train", "eval"))


def evaluate_saved(optimizer: Any, saved: Any) -> None:
    """Of the saved weights to train, which the model holds, make those to evaluate."""
    shared = {id(each): each for each in _parameters(optimizer)}
    other = object.__new__(type(optimizer))
    vars(other).update(deepcopy(vars(optimizer), shared))
    other.state.clear()
    other.train()  # moves nothing without a state
    other.load_state_dict(saved)
    other.eval()


def _has_groups(thing: Any) -> bool:
    return isinstance(getattr(thing, "param_groups", None), Sequence)


def _mode(optimizer: Any) -> list[Any]:
    """What `eval()` changes unless it was called before: a flag somewhere, or the weights."""
    places = (getattr(optimizer, "__dict__", {}), *optimizer.param_groups)
    flags = [each for one in places for each in one.values() if isinstance(each, bool | int | str)]
    return [*flags, *(each._version for each in _parameters(optimizer))]


def _state(optimizer: Any) -> dict[Any, Any]:
    return dict(getattr(optimizer, "state", {}))


def _parameters(optimizer: Any) -> list[Any]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _kept(optimizer: Any) -> Callable[[], None]:
    """Copy the weights; return a function that puts them back."""
    from torch.nn.parameter import is_lazy

    from .tensors import local

    known, tensors = _state(optimizer), [e for e in _parameters(optimizer) if not is_lazy(e)]
    copies = [local(each).detach().clone() for each in tensors]

    def put_back() -> None:
        for each, copy in zip(tensors, copies, strict=True):
            local(each).data.copy_(copy)
        for each, value in _state(optimizer).items():
            if each not in known and value == {}:  # since the optimizer has looked for it
                del optimizer.state[each]

    return put_back

"""A module's weights, and those of another one in their place for a while."""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from itertools import chain
from weakref import WeakKeyDictionary, WeakSet

from torch import Tensor
from torch.nn import Module
from torch.optim.swa_utils import AveragedModel

from .wrappers import unwrap

OWN: WeakKeyDictionary[Module, dict[str, Tensor]] = WeakKeyDictionary()
"""Of modules that hold the weights of others for a while: where their own are meanwhile."""
TWINS: WeakSet[Module] = WeakSet()
"""Copies made by `twin`: no batch ever goes through them in training."""


def weights_of(module: Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, also those that are not saved; tied ones once."""
    first: dict[int, str] = {}
    return {
        name: tensor
        for name, tensor in _named(module)
        if first.setdefault(id(tensor), name) == name
    }


def twin(module: Module) -> Module:
    """A copy that records no gradients, with float32 for numbers of 16 bits and less.

    An average moves by small parts of a difference, which a bfloat16 would round away.
    """
    made = copy.deepcopy(unwrap(module)).requires_grad_(False)
    for tensor in weights_of(made).values():
        if tensor.is_floating_point() and tensor.element_size() < 4:
            tensor.data = tensor.data.float()
    TWINS.add(made)
    return made


def buffers_in_training(objects: Iterable[object]) -> list[Tensor]:
    """What batches may change by going through modules; averages and best weights are not that."""
    modules = [each for each in objects if isinstance(each, Module)]
    used = [m for m in modules if m not in TWINS and not isinstance(m, AveragedModel)]
    return list({id(each): each for module in used for each in module.buffers()}.values())


def put(target: Module, source: Module) -> None:
    """Copy all weights of a module into another one of the same kind."""
    for into, value in pairs_of(target, source).values():
        into.data.copy_(value.data)


def exchange(first: Module, second: Module) -> None:
    """Let two modules of the same kind have each other's weights."""
    for one, other in pairs_of(first, second).values():
        _exchange(one, other)


def pairs_of(first: Module, second: Module) -> dict[str, tuple[Tensor, Tensor]]:
    """The weights of two modules, side by side.

    Raises:
        ValueError: They have other names or shapes.
    """
    one, other = weights_of(unwrap(first)), weights_of(unwrap(second))
    odd = sorted(one.keys() ^ other.keys())
    odd += sorted(n for n in one.keys() & other.keys() if one[n].shape != other[n].shape)
    if odd:
        raise ValueError(
            f"the weights of a {type(second).__name__} do not fit into a {type(first).__name__}: "
            f"{', '.join(odd[:5])}{', ...' if len(odd) > 5 else ''}"
        )
    return {name: (tensor, other[name]) for name, tensor in one.items()}


@contextmanager
def lent(borrower: Module, owner: Module) -> Generator[None]:
    """Put what one module holds into another one; afterwards, all is back where it was.

    Contents change places, so that takes no memory, and both stay the objects that they are; a
    weight whose type differs is set aside. A snapshot that is taken meanwhile has each module's
    own weights, by `own_weights`.

    Raises:
        RuntimeError: One of them takes part in this already.
        ValueError: They have other names or shapes.
    """
    borrower, owner = unwrap(borrower), unwrap(owner)
    if borrower in OWN or owner in OWN:
        raise RuntimeError(
            "these weights are lent already, by an evaluation with weights= or by "
            "`with engine.using(...)`; end that first"
        )
    with ExitStack() as undo:
        places: dict[int, Tensor] = {}
        for mine, other in pairs_of(borrower, owner).values():
            if mine.dtype == other.dtype:
                places |= {id(mine): other, id(other): mine}
                undo.callback(_exchange, mine, other)
                _exchange(mine, other)
            else:
                places[id(mine)] = mine.detach().clone()
                undo.callback(mine.data.copy_, places[id(mine)])
                mine.data.copy_(other.data)
        for module in (borrower, owner):
            named = _named(module)
            OWN[module] = {name: places[id(own)] for name, own in named if id(own) in places}
            undo.callback(OWN.pop, module)
        yield


def own_weights(module: Module) -> dict[str, Tensor]:
    """Where a module's own weights are, by name, while it holds another one's; else nothing."""
    return OWN.get(module, {})


def _exchange(one: Tensor, other: Tensor) -> None:
    # By .data: a graph that was recorded before stays good for its backward pass.
    held = one.data.clone()
    one.data.copy_(other.data)
    other.data.copy_(held)


def _named(module: Module) -> Iterable[tuple[str, Tensor]]:
    return chain(
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
    )

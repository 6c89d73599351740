"""The weights of modules: copied, exchanged, or lent for the length of a `with`."""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from itertools import chain

from torch import Tensor
from torch.nn import Module
from torch.optim.swa_utils import AveragedModel

from .known import modules_of
from .sharded import fully_sharded, has_shards, is_alike, reshard, weights_alone
from .tensors import local
from .wrappers import plain_names, unwrap

Lent = dict[Module, dict[str, Tensor]]
"""By module: where its own weights are, by name, while it holds those of another module."""
TWIN = "_camshaft_twin"
"""The attribute of copies made by `twin`: no batch goes through such a copy in training."""


def weights_of(module: Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, buffers that are not saved included; tied ones once."""
    first: dict[int, str] = {}
    return {
        name: tensor
        for name, tensor in _named(module)
        if first.setdefault(id(tensor), name) == name
    }


def twin(module: Module, device: str | None = None) -> Module:
    """A copy that records no gradients, with float32 for numbers of 16 bits and less.

    An average moves by small parts of a difference, which a bfloat16 would round away. Of a sharded
    module it is a copy of the weights alone: each rank has its own parts.
    """
    inner = unwrap(module)
    if has_shards(inner):
        made: Module = weights_alone(inner, device)
    else:
        made = copy.deepcopy(inner).requires_grad_(False).to(device)
        for tensor in weights_of(made).values():
            if tensor.is_floating_point() and tensor.element_size() < 4:
                tensor.data = tensor.data.float()
    setattr(made, TWIN, True)
    return made


def is_copy(module: Module) -> bool:
    """True for averages and best weights, which no batch goes through in training."""
    return hasattr(module, TWIN) or isinstance(module, AveragedModel)


def buffers_in_training(objects: Iterable[object]) -> list[Tensor]:
    """The buffers that a forward pass in training may change, without those of averages."""
    used = [m for each in objects for m in modules_of(each) if not is_copy(m)]
    return list({id(each): each for module in used for each in module.buffers()}.values())


def put(target: Module, source: Module) -> None:
    """Copy all weights of a module into another one of the same kind."""
    for into, value in pairs_of(target, source).values():
        _copy(into, value)


def exchange(first: Module, second: Module) -> None:
    """Exchange the weights of two modules of the same kind."""
    for one, other in pairs_of(first, second).values():
        _exchange(one, other)


def pairs_of(first: Module, second: Module) -> dict[str, tuple[Tensor, Tensor]]:
    """The weights of two modules by their plain names, in pairs; of sharded ones, the shards."""
    one, other = _plain(unwrap(first)), _plain(unwrap(second))
    odd = sorted(one.keys() ^ other.keys())
    both = sorted(one.keys() & other.keys())
    odd += [name for name in both if one[name].shape != other[name].shape]
    if odd:
        raise ValueError(
            f"the weights of a {type(second).__name__} do not fit into a {type(first).__name__}: "
            f"{_some(odd)}"
        )
    if unlike := [name for name in both if not is_alike(one[name], other[name])]:
        raise ValueError(
            f"the weights of a {type(second).__name__} and of a {type(first).__name__} are sharded "
            f"in different ways: {_some(unlike)}. Shard the model (fully_shard, "
            "parallelize_module) before a handler that copies its weights is attached"
        )
    return {name: (tensor, other[name]) for name, tensor in one.items()}


@contextmanager
def lend(borrower: Module, owner: Module, lent: Lent) -> Generator[None]:
    """Exchange the weights of two modules for the length of a `with`.

    The contents of the tensors change places, which takes no memory, and the tensors stay the
    same objects. A weight whose type differs is copied instead.

    Args:
        borrower: The module that is to hold the weights of `owner`.
        owner: A module of the same kind.
        lent: Filled meanwhile with where each module's own weights are; checkpoints read it.

    Raises:
        RuntimeError: The weights of one of them are lent already.
        ValueError: Names or shapes differ.
    """
    borrower, owner = unwrap(borrower), unwrap(owner)
    if borrower in lent or owner in lent:
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
                undo.callback(_copy, mine, places[id(mine)])
                _copy(mine, other)
        for module in (borrower, owner):
            named = _named(module)
            lent[module] = {name: places[id(own)] for name, own in named if id(own) in places}
            undo.callback(lent.pop, module)
        yield


def _copy(into: Tensor, value: Tensor) -> None:
    # By .data, so that a graph recorded before stays valid for its backward pass.
    local(into).data.copy_(local(value).data)


def _exchange(one: Tensor, other: Tensor) -> None:
    before = local(one).data.clone()
    _copy(one, other)
    local(other).data.copy_(before)


def _plain(module: Module) -> dict[str, Tensor]:
    """The weights by their names without wrappers."""
    own = weights_of(module)
    names = plain_names(module, own)
    return {names[name]: tensor for name, tensor in own.items()}


def _some(names: list[str]) -> str:
    return f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"


def _named(module: Module) -> Iterable[tuple[str, Tensor]]:
    """All parameters and buffers by name; of a module of FSDP2, the shards."""
    reshard(fully_sharded([module]))
    return chain(
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
    )

"""The weights of modules: copied, exchanged, or lent inside a `with` block."""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from itertools import chain

from torch import Tensor
from torch.nn import Module
from torch.optim.swa_utils import AveragedModel

from ..names import few
from .known import modules_of
from .sharded import fully_sharded, has_shards, is_alike, reshard, weights_alone
from .tensors import local
from .wrappers import plain_names, unwrap

Lent = dict[Module, dict[str, Tensor]]
"""By module and name: the tensors with its own weights, while it holds another module's."""
TWIN = "_camshaft_twin"
"""The attribute that marks copies made by `twin`; training does not call such a copy."""


def weights_of(module: Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, also non-persistent buffers; tied tensors once."""
    first: dict[int, str] = {}
    return {
        name: tensor
        for name, tensor in _named(module)
        if first.setdefault(id(tensor), name) == name
    }


def twin(module: Module, device: str | None = None) -> Module:
    """A copy that records no gradients, with float32 for floating-point types of 16 bits or less.

    An average moves by small fractions of a difference, which bfloat16 would round away. For a
    sharded module, only the weights are copied: each rank copies its own shards.
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
    """True for averages and best weights, which training does not call."""
    return hasattr(module, TWIN) or isinstance(module, AveragedModel)


def buffers_in_training(objects: Iterable[object]) -> list[Tensor]:
    """The buffers that a training forward pass may change, without buffers of averages."""
    used = [m for each in objects for m in modules_of(each) if not is_copy(m)]
    return list({id(each): each for module in used for each in module.buffers()}.values())


def put(target: Module, source: Module) -> None:
    """Copy all weights of `source` into `target`, a module with the same names and shapes."""
    for into, value in pairs_of(target, source).values():
        _copy(into, value)


def exchange(first: Module, second: Module) -> None:
    """Exchange the weights of two modules with the same names and shapes."""
    for one, other in pairs_of(first, second).values():
        _exchange(one, other)


def pairs_of(first: Module, second: Module) -> dict[str, tuple[Tensor, Tensor]]:
    """The weights of two modules, in pairs by their plain names; for sharded modules, shards."""
    one, other = _plain(unwrap(first)), _plain(unwrap(second))
    odd = sorted(one.keys() ^ other.keys())
    both = sorted(one.keys() & other.keys())
    odd += [name for name in both if one[name].shape != other[name].shape]
    if odd:
        raise ValueError(
            f"the weights of a {type(second).__name__} do not fit into a {type(first).__name__}: "
            f"{few(odd)}"
        )
    if unlike := [name for name in both if not is_alike(one[name], other[name])]:
        raise ValueError(
            f"the weights of a {type(second).__name__} and of a {type(first).__name__} are sharded "
            f"in different ways: {few(unlike)}. Shard the model (fully_shard, "
            "parallelize_module) before a handler that copies its weights is attached"
        )
    return {name: (tensor, other[name]) for name, tensor in one.items()}


@contextmanager
def lend(borrower: Module, owner: Module, lent: Lent) -> Generator[None]:
    """Exchange the weights of two modules inside a `with` block.

    The tensors exchange their contents and stay the same objects. A weight whose dtype differs is
    copied instead.

    Args:
        borrower: The module that will hold the weights of `owner`.
        owner: A module with the same names and shapes.
        lent: Filled inside the block with the tensors of each module's own weights; checkpoints
            read it.

    Raises:
        RuntimeError: The weights of one module are lent already.
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
    # By .data, so that an earlier recorded graph stays valid for its backward pass.
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


def _named(module: Module) -> Iterable[tuple[str, Tensor]]:
    """All parameters and buffers by name; for a module of FSDP2, the shards."""
    reshard(fully_sharded([module]))
    return chain(
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
    )

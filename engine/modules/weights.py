"""The weights of modules: copied, exchanged, or lent inside a `with` block."""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.optim.swa_utils import AveragedModel
from torch.utils._pytree import tree_leaves

from ..names import few
from .known import modules_of
from .places import Place, places_of, set_in_place, tensor_at
from .sharded import as_in_a_copy, fully_sharded, has_shards, is_alike, reshard, weights_alone
from .tensors import is_spread, local
from .wrappers import unwrap

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

    Raises:
        TypeError: The module holds something that cannot be copied.
    """
    inner = unwrap(module)
    if has_shards(inner):
        made: Module = weights_alone(inner, device)
    else:
        try:
            made = copy.deepcopy(inner, _not_copied_by_torch(inner)).to(device)
        except Exception as error:
            raise TypeError(
                f"averages and best weights copy the model, and copy.deepcopy fails: {error}. Keep "
                f"what cannot be copied out of the {type(inner).__name__}, or write a __deepcopy__"
            ) from error
        for tensor in weights_of(made).values():
            if not is_lazy(tensor):
                tensor.requires_grad_(False)
                if tensor.is_floating_point() and tensor.element_size() < 4:
                    tensor.data = tensor.data.float()
    setattr(made, TWIN, device)
    return made


def _not_copied_by_torch(module: Module) -> dict[int, Any]:
    """By id, for `copy.deepcopy`: copies of tensors with a graph, and of those without a shape."""
    made: dict[int, Any] = {}
    each: Any
    for each in (one for part in module.modules() for one in tree_leaves(vars(part))):
        if is_lazy(each):
            kind: Any = type(each)
            made[id(each)] = kind(requires_grad=False, device=each.device, dtype=each.dtype)
        elif isinstance(each, Tensor) and not each.is_leaf:  # as weight_norm makes them
            made[id(each)] = each.detach().clone()
    return made


def renewed(made: Module, module: Module) -> Module:
    """A module's twin, or another one with its values if weights have come to the module or gone.

    So it is if weights are tied, or no longer tied. New weights are copied from the module.
    """
    own, now = places_of(made), places_of(unwrap(module))
    if _ties(own) == _ties(now):
        return made
    new = twin(module, getattr(made, TWIN))
    for name, place in places_of(new).items():
        if name in own and fits(tensor_at(place), tensor_at(own[name])):
            set_in_place(tensor_at(place), tensor_at(own[name]))
    return new


def _ties(places: dict[str, Place]) -> dict[str, str]:
    """By name: the first name of the same tensor."""
    first: dict[int, str] = {id(None): ""}
    return {n: first.setdefault(id(tensor_at(place)), n) or n for n, place in places.items()}


def is_copy(module: Module) -> bool:
    """True for averages and best weights, which training does not call."""
    return hasattr(module, TWIN) or isinstance(module, AveragedModel)


def in_training(objects: Iterable[object]) -> list[Module]:
    """The modules among objects that a training forward pass may call: all but averages."""
    return [m for each in objects for m in modules_of(each) if not is_copy(m)]


def put(target: Module, source: Module) -> Module:
    """Copy all weights of `source` into `target`, of the same names; return `target`.

    For a twin of `source`, shapes and names may differ; if names do, another twin is returned.
    """
    if hasattr(target, TWIN):
        target = renewed(target, source)
    for mine, its in pairs_of(target, source).values():
        set_at(mine, tensor_at(its), getattr(target, TWIN, None))
    return target


def exchange(first: Module, second: Module) -> None:
    """Exchange the weights of two modules with the same names and shapes; of a twin, any shapes."""
    for one, other in pairs_of(first, second).values():
        _exchange(one, other)


def pairs_of(first: Module, second: Module) -> dict[str, tuple[Place, Place]]:
    """The places of two modules' weights, in pairs by their plain names; for shards as well.

    Raises:
        ValueError: Names differ; or shapes, and none of the two is a copy of the other.
    """
    one, other = unwrap(first), unwrap(second)
    reshard(fully_sharded([one, other]))
    pairs, theirs = places_of(one), places_of(other)
    odd = sorted(pairs.keys() ^ theirs.keys())
    found: dict[str, tuple[Place, Place]] = {}
    seen = set[tuple[int, int]]()
    for name in [name for name in pairs if name in theirs]:
        both = pairs[name], theirs[name]
        ids = id(tensor_at(both[0])), id(tensor_at(both[1]))
        if ids not in seen or id(None) in ids:  # tied tensors once
            found[name] = both
            seen.add(ids)
    if not (is_copy(first) or is_copy(second)):
        odd += [
            name for name, (a, b) in sorted(found.items()) if not fits(tensor_at(a), tensor_at(b))
        ]
    if odd:
        raise ValueError(
            f"the weights of a {type(second).__name__} do not fit into a {type(first).__name__}: "
            f"{few(odd)}. Names and shapes have to be the same; those of best weights and averages "
            "are, if the model has all its parts before they are made"
        )
    if unlike := [
        n for n, (a, b) in sorted(found.items()) if not _are_alike(tensor_at(a), tensor_at(b))
    ]:
        raise ValueError(
            f"the weights of a {type(second).__name__} and of a {type(first).__name__} are sharded "
            f"in different ways: {few(unlike)}. Shard the model (fully_shard, "
            "parallelize_module) before a handler that copies its weights is attached"
        )
    return found


def fits(one: Any, other: Any) -> bool:
    """True for two tensors of one shape, for two that have none yet, and for None twice.

    >>> import torch
    >>> fits(torch.zeros(2), torch.ones(2)), fits(torch.zeros(2), None), fits(None, None)
    (True, False, True)
    """
    lazy = [each is not None and is_lazy(each) for each in (one, other)]
    if one is None or other is None or any(lazy):
        return one is other or all(lazy)
    return bool(one.shape == other.shape)


def _are_alike(one: Any, other: Any) -> bool:
    if one is None or other is None or not (is_spread(one) or is_spread(other)):
        return True
    return bool(one.shape == other.shape) and is_alike(one, other)


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
        own = {module: dict(_named(module)) for module in (borrower, owner)}
        held: dict[int, Any] = {}
        for mine, its in pairs_of(borrower, owner).values():
            one, other = tensor_at(mine), tensor_at(its)
            if one is not None and other is not None and one.dtype != other.dtype:
                held[id(one)] = one.detach().clone()
                undo.callback(set_at, mine, held[id(one)])
                set_in_place(one, other)
            else:
                held |= {id(one): other, id(other): one}
                undo.callback(_exchange, mine, its)
                _exchange(mine, its)
        for module, named in own.items():
            lent[module] = {n: held[id(each)] for n, each in named.items() if id(each) in held}
            undo.callback(lent.pop, module)
        yield


def set_at(place: Place, value: Any, device: Any = None) -> None:
    """Set the tensor of a place to a value of any shape; it stays the same object, if there is one.

    A value that has no shape yet changes nothing.
    """
    holder, name = place
    if value is None:
        holder[name] = None
    elif holder[name] is not None and not is_lazy(value):
        set_in_place(holder[name], value)
    elif not is_lazy(value):
        holder[name] = as_in_a_copy(value, device)


def _exchange(one: Place, other: Place) -> None:
    (mine, name), (its, key) = one, other
    if mine[name] is None or its[key] is None:
        mine[name], its[key] = its[key], mine[name]
    elif mine[name] is not its[key]:
        before = local(mine[name]).data.clone()
        set_in_place(mine[name], its[key])
        set_in_place(its[key], before)


def _named(module: Module) -> Iterable[tuple[str, Tensor]]:
    """All parameters and buffers by name; for a module of FSDP2, the shards."""
    reshard(fully_sharded([module]))
    return chain(
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
    )

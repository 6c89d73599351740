"""A module's weights: under plain names, however it is wrapped; and which of them are frozen.

Frozen weights, such as those below an adapter, have a file of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from ...engine import ranks
from ...engine.modules import (
    TWIN,
    box_of,
    copy_part,
    inside,
    is_spread,
    local,
    plain_names,
    unwrap,
)
from .directory import StoredTensor
from .format import FROZEN
from .sharding import Box, holds_first_copy, is_sharded

PIECE = 2**24
"""The elements after which the factors of a checksum restart, each time one higher."""
AT_ONCE = 2**16
"""Numbers that are added up at once; each takes 24 bytes of memory. It divides `PIECE`."""
SMALLEST = 2**20
"""The fewest bytes of frozen weights that may get a file of their own."""
OF_AVERAGES = copy_part.__module__
"""Where the averages of sharded modules have their way to load."""
ROWS = 16
"""The rows of a tensor that `some_checksums` sees, at least if it has so many."""
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def weights(
    module: Module, lent: Mapping[Module, Mapping[str, Tensor]] | None = None
) -> dict[str, Any]:
    """The `state_dict` of a module, under its names without wrappers.

    A module that holds another module's weights for a while, as in an evaluation of averages,
    gives its own, from `lent`.

    >>> from torch.nn import DataParallel, Linear
    >>> list(weights(DataParallel(Linear(2, 1))))
    ['weight', 'bias']
    """
    holder, inner = _holder(module), unwrap(module)
    state, own = holder.state_dict(), (lent or {}).get(inner, {})
    names, places = plain_names(holder, state), plain_names(inner, own)
    own = {places[name]: tensor for name, tensor in own.items()}
    return {names[name]: own.get(names[name], value) for name, value in state.items()}


def load_weights(module: Module, saved: Mapping[str, Any]) -> None:
    """Load what `weights` gave, or a part of it, whether or not the module is wrapped now.

    A weight in a file is copied from there to its place, without a tensor in between. Of a
    distributed weight, only this rank's shard is read. Modules that load in a way of their own get
    all that was saved below their names.
    """
    holder = _holder(module)
    own = holder.state_dict()
    names, ways = plain_names(holder, own), own_ways(module)
    state = {n: _put(own[n], saved[names[n]]) if names[n] in saved else own[n] for n in own}
    for plain in saved.keys() - names.values():
        if ways_of := [way for way in ways if plain.startswith(way)]:
            way = max(ways_of, key=len)
            state[ways[way] + plain.removeprefix(way)] = _put(None, saved[plain])
    if _is_torchs(holder.load_state_dict):  # names were compared; hooks may hide some or add some
        holder.load_state_dict(state, strict=False)
    else:
        holder.load_state_dict(state)


def own_ways(module: Module) -> dict[str, str]:
    """The beginnings of plain names that modules load in ways of their own, and the full ones.

    Such a module may take weights of another shape or name, so it is asked before it is compared.
    """
    holder = _holder(module)
    modules = holder.named_modules(remove_duplicate=False)
    own = [path for path, each in modules if _loads_in_a_way(each)]
    plain = plain_names(holder, own) if own else {}
    return {f"{plain[path]}.".lstrip("."): f"{path}.".lstrip(".") for path in own}


def hidden(module: Module, trained: set[int]) -> list[str]:
    """The plain names of trained parameters, by identity, that the `state_dict` leaves out."""
    own, ways, named = weights(module), (*own_ways(module),), named_parameters_of(module)
    lost = trained - {id(each) for name, each in named.items() if name in own}
    return [n for n, each in named.items() if id(each) in lost and not n.startswith(ways)]


def _loads_in_a_way(module: Module) -> bool:
    hooks = module._load_state_dict_pre_hooks.values()  # pyright: ignore
    own = module._load_from_state_dict  # pyright: ignore
    loaders = [own, module.load_state_dict, *hooks]
    return not all(map(_is_torchs, loaders))


def _is_torchs(function: Any) -> bool:
    """True for what torch's own layers and wrappers do, which takes like weights alone.

    So do averages of sharded modules.
    """
    name = getattr(function, "__module__", None) or ""
    return name.startswith(("torch.", OF_AVERAGES)) and not name.startswith("torch.ao.")


def named_parameters_of(module: Module) -> dict[str, Tensor]:
    """The parameters by their plain names; those of tied weights under each."""
    inner = unwrap(module)
    named = dict(inner.named_parameters(remove_duplicate=False))
    names = plain_names(inner, named)
    return {names[name]: parameter for name, parameter in named.items()}


def parameter_names(optimizer: Optimizer, objects: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """By module and plain name: the index by which the optimizer's state calls each parameter."""
    groups = optimizer.param_groups
    indices = {id(p): n for n, p in enumerate(p for group in groups for p in group["params"])}
    named = {name: named_parameters_of(m) for name, m in objects.items() if isinstance(m, Module)}
    found = {
        name: {key: indices[id(each)] for key, each in own.items() if id(each) in indices}
        for name, own in named.items()
    }
    return {name: own for name, own in found.items() if own}


def has_groups(saved: Any) -> bool:
    """True for a state in torch's form; an optimizer that wraps others may have another form."""
    return isinstance(saved, Mapping) and {"state", "param_groups"} <= {*saved}


def _holder(module: Module) -> Module:
    """The outermost module with a state of its own; an average also has a counter."""
    while inside(module) in ("module", "_orig_mod", "_forward_module") and not isinstance(
        module, AveragedModel
    ):
        module = getattr(module, str(inside(module)))
    return module


def _put(own: Any, found: Any) -> Any:
    """Copy a weight to its place at once, so that the memory of its source is freed."""
    if isinstance(own, Tensor) and not is_lazy(own):
        if 0 in own.stride() and own.numel() and own.shape == found.shape:
            return _put_expanded(own, found)
        if isinstance(found, Tensor) and (own.shape, own.dtype) == (found.shape, found.dtype):
            if own is not found:
                copy_part(local(own), local(found))  # both are in the same shards
            return own
        if isinstance(found, StoredTensor) and found.shape == tuple(own.shape):
            begin = [first for first, _ in box_of(own)] if is_spread(own) else None
            found.fill(local(own).data, begin)
            return own
    return found.read() if isinstance(found, StoredTensor) else found


def _put_expanded(own: Tensor, found: Any) -> Tensor:
    """Fill a tensor of which some places are one place in memory, as after `expand`."""
    value = found if isinstance(found, Tensor) else found.read()
    first = tuple(slice(0, 1) if step == 0 else slice(None) for step in own.stride())
    own.detach()[first].copy_(value[first])
    if not torch.equal(own, value.to(own)):
        raise ValueError("a weight that is expanded from fewer numbers cannot hold the saved ones")
    return own


def with_frozen_apart(
    modules: Mapping[str, Module], files: Mapping[str, Mapping[str, Tensor]]
) -> dict[str, Mapping[str, Tensor]]:
    """The tensors by file, where the frozen weights of some modules get a file of their own.

    Later checkpoints can share such a file. It holds the frozen weights of a module that is trained
    in part, if they are at least half of its bytes and `SMALLEST`. For an average they are the
    frozen weights of its model.
    """
    frozen, found = dict[str, set[str]](), dict(files)
    for name in sorted(modules, key=lambda name: hasattr(modules[name], TWIN)):
        own, tensors = modules[name], files[name]
        if hasattr(own, TWIN):
            like = (each for each in frozen if files[each].keys() == tensors.keys())
            frozen[name] = frozen.get(next(like, ""), set())
        elif any(each.requires_grad for each in own.parameters()):
            named = named_parameters_of(own)
            frozen[name] = {n for n, e in named.items() if not e.requires_grad} & tensors.keys()
        else:  # a whole module that is frozen has a file of its own
            frozen[name] = set()
        size = sum(tensors[each].nbytes for each in frozen[name])
        if size >= SMALLEST and 2 * size >= sum(each.nbytes for each in tensors.values()):
            found[name] = {n: each for n, each in tensors.items() if n not in frozen[name]}
            found[name + FROZEN] = {n: tensors[n] for n in tensors if n in frozen[name]}
    return found


def checksums(module: Module, names: set[str] | None = None) -> dict[str, int]:
    """The checksums of a module's parameters, or of those named, by their plain names."""
    own = {
        key: each
        for key, each in named_parameters_of(module).items()
        if names is None or key in names
    }
    own = {key: each for key, each in own.items() if not is_lazy(each)}
    sums = {key: checksum(each) for key, each in own.items()}
    if shards := [key for key, each in own.items() if is_sharded(each)]:
        # Each rank has the sum over its shards; all ranks ask for the same weights.
        added = ranks.total(torch.stack([sums[key] for key in shards]))
        sums |= dict(zip(shards, added, strict=True))  # type: ignore[arg-type]
    return {key: int(each) for key, each in sums.items()}  # waits when all devices have work


def checksum(tensor: Tensor) -> Tensor:
    """The sum of the bits as integers, each times its place; exact, and on the tensor's device.

    For a sharded tensor, it is the part of the sum that belongs to this rank's shard. Of ranks with
    the same shard, one contributes.
    """
    own = local(tensor).detach().contiguous().reshape(-1)
    total = torch.zeros((), dtype=torch.int64, device=own.device)
    box = box_of(tensor) if is_sharded(tensor) else None
    if box is not None and not holds_first_copy(tensor):
        return total
    bits = own.view(INTEGERS.get(own.element_size(), torch.int64))
    for first in range(0, len(bits), AT_ONCE):
        numbers = bits[first : first + AT_ONCE]
        if box is None:
            begin = first % PIECE + first // PIECE + 1
            factors = torch.arange(begin, begin + len(numbers), device=own.device)
        else:
            places = torch.arange(first, first + len(numbers), device=own.device)
            places = _places_in_whole(places, box, tensor.shape)
            factors = places % PIECE + places // PIECE + 1
        total += (numbers.long() * factors).sum()
    return total


def some_checksums(tensors: Iterable[Tensor]) -> list[int]:
    """Checksums of a value in each of some rows of all tensors, by device and size of a number.

    It copies no tensor, so each save can take it.
    """
    found = dict[tuple[Any, Any], list[Tensor]]()
    for each in tensors:
        some = each.detach()
        while some.ndim > 1 and some.numel():
            some = some[:, some.shape[1] // 2]
        some = some.reshape(-1)
        some = some[:: max(1, len(some) // ROWS)].contiguous()
        bits = some.view(INTEGERS.get(some.element_size(), torch.int64))
        found.setdefault((bits.device, bits.dtype), []).append(bits)
    return [int(checksum(torch.cat(bits))) for bits in found.values()]


def _places_in_whole(places: Tensor, box: Box, shape: Sequence[int]) -> Tensor:
    """Places in a shard as places in the whole tensor, of which the shard is a box."""
    found, step = torch.zeros_like(places), 1
    for (begin, end), size in zip(reversed(box), reversed(shape), strict=True):
        found += (places % (end - begin) + begin) * step
        places, step = places // (end - begin), step * size
    return found

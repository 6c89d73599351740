"""Compares what ranks hold: weights have to be the same on all, buffers may differ.

A checkpoint has one copy of whole tensors, that of rank 0. Buffers of other ranks that differ, such
as the running means of a batch norm under DDP, are saved for each of these ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from ....engine import ranks
from ....engine.modules import fully_sharded, plain_names, reshard, unwrap
from ..frozen import checksum, checksums
from ..sharding import is_sharded
from ..weights import named_parameters_of, weights

SHOWN = 4
"""Weights and ranks that an error names."""
Sums = dict[tuple[str, str], int]
"""By object and weight: checksums of what each rank should hold in the same bits."""
Buffers = dict[str, dict[str, Tensor]]
"""By object and plain name."""


def check_same_weights(objects: Mapping[str, Any]) -> None:
    """Compare the parameters of modules over all ranks; they all have to call this.

    Buffers may differ, and are saved for each rank. Ranks that hold the same send two messages of
    16 bytes.

    Raises:
        ValueError: A parameter that is no shard differs between ranks: on all ranks.
    """
    own = _sums(objects)
    numbers = [_digest([*own]), _digest([*own.values()])]
    if all(ranks.decided(numbers, lambda rows: (rows == rows[0]).all(0))):
        return
    first = ranks.from_first(own)
    odd = [each for each in [*first, *own] if own.get(each) != first.get(each)]
    found = ranks.gathered((len({*odd}), list(dict.fromkeys(odd))[:SHOWN]))
    raise ValueError(_told(found))


def _sums(objects: Mapping[str, Any]) -> Sums:
    found: Sums = {}
    reshard(fully_sharded(objects.values()))  # after a forward pass alone
    for name in sorted(objects):
        if isinstance(objects[name], Module):
            own = named_parameters_of(objects[name])
            whole = {key for key, each in own.items() if _is_dense(each)}
            sums = checksums(objects[name], whole) if whole else {}
            found |= {(name, key): sums[key] for key in sorted(sums)}
    return found


def _is_dense(parameter: Tensor) -> bool:
    """True for plain tensors in memory; shards, packed tensors and the like are not compared."""
    if is_lazy(parameter) or type(parameter.detach()) is not Tensor:
        return False
    return not parameter.is_meta and str(parameter.layout) == "torch.strided"


def _digest(values: list[Any]) -> int:
    return int(sha256(repr(values).encode()).hexdigest()[:12], 16)


def _told(found: list[tuple[int, list[tuple[str, str]]]]) -> str:
    others = [rank for rank, (count, _) in enumerate(found) if count]
    count, odd = found[others[0]]
    who = f"rank{'s' * (len(others) > 1)} {', '.join(map(str, others[:SHOWN]))}"
    who += ", ..." if len(others) > SHOWN else ""
    names = ", ".join(f"{key!r} of objects[{name!r}]" for name, key in odd)
    more = f" and {count - len(odd)} more" if count > len(odd) else ""
    return (
        f"the weights of the ranks are not those of one model: {who} and rank 0 hold other values "
        f"of {names}{more}, and a checkpoint would hold those of rank 0 alone. If the ranks train "
        "one model, wrap it: DistributedDataParallel(model), or fully_shard(model), before the "
        "optimizer is made. If each rank trains a model or a stage of its own, let it run and save "
        "inside `with ranks.alone():`, by a Checkpoint in a directory of its own"
    )


def buffers_of_own(objects: Mapping[str, Any]) -> Buffers:
    """The buffers of this rank that differ from rank 0's; all ranks have to call this.

    Their checksums are compared, in one message.
    """
    held = _buffers_of(objects)
    if not held:
        return {}
    places = [(name, key) for name, each in held.items() for key in each]
    own = torch.stack([checksum(held[name][key]) for name, key in places])
    first = own.clone()
    ranks.share([first])
    differs = (own != first).tolist()
    found: Buffers = {}
    for (name, key), is_own in zip(places, differs, strict=True):
        if is_own:
            found.setdefault(name, {})[key] = held[name][key]
    return found


def _buffers_of(objects: Mapping[str, Any]) -> Buffers:
    """The saved buffers of modules, without distributed ones, which belong to no single rank."""
    found: Buffers = {}
    for name, each in objects.items():
        if not isinstance(each, Module):
            continue
        inner = unwrap(each)
        held = dict(inner.named_buffers(remove_duplicate=False))
        if not held:
            continue
        names, saved = plain_names(inner, held), weights(each)
        own = {names[key]: buffer for key, buffer in held.items()}
        own = {key: own[key] for key in own if key in saved and not is_sharded(own[key])}
        if own:
            found[name] = own
    return found

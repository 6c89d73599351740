"""Calls on many tensors at once, tensors sharded over a mesh of ranks, and moves to a device.

The shards of FSDP and tensor parallelism are `DTensor`s. For plain tensors, torch's optimizers and
its clipping handle many tensors in one call. Torch has no public names for these calls; if a torch
lacks a name, public calls replace it, one for each tensor. These calls have no wrapper here, which
would cost one more call in each step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.linalg import vector_norm

from .. import ranks

DEVICE_AND_DTYPE = attrgetter("device", "dtype")
SAMPLES = 8
"""How many numbers of a tensor `sample` reads."""
Norms = Callable[[Sequence[Tensor], float], Sequence[Tensor]]
Multiply = Callable[[Sequence[Tensor], Tensor | float], None]
Copy = Callable[[Sequence[Tensor], Sequence[Tensor]], None]


def _norm_of_each(tensors: Sequence[Tensor], kind: float) -> Sequence[Tensor]:
    return [vector_norm(each, kind) for each in tensors]


def _multiply_each(tensors: Sequence[Tensor], factor: Tensor | float) -> None:
    for each in tensors:
        each.mul_(factor)


def _copy_each(into: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    for one, other in zip(into, given, strict=True):
        one.copy_(other)


norm_of_each: Norms = getattr(torch, "_foreach_norm", _norm_of_each)
"""The norm of each tensor, of a kind such as 2.0."""
multiply_each: Multiply = getattr(torch, "_foreach_mul_", _multiply_each)
"""Multiply each tensor in place."""
copy_each: Copy = getattr(torch, "_foreach_copy_", _copy_each)
"""Copy each tensor of the second list into the tensor at the same place of the first list."""


def moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device; the host waits only if the device is the CPU.

    Without a wait, the host could read a CPU copy before it is complete.

    >>> moved(torch.ones(2), "meta").device.type
    'meta'
    """
    return tensor.to(device, non_blocking=torch.device(device).type != "cpu")


def is_spread(tensor: object) -> TypeGuard[Any]:
    """True for a `DTensor`: this rank holds a part or a replica of it."""
    kind = _dtensor()
    return kind is not None and isinstance(tensor, kind)


def are_spread(tensors: Iterable[object]) -> bool:
    """True if one of these tensors is a `DTensor`."""
    return _dtensor() is not None and any(map(is_spread, tensors))


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank holds, in the same memory; a plain tensor as it is."""
    # to_local() would be recorded for gradients, or make a view.
    return tensor._local_tensor if is_spread(tensor) else tensor


def locals_of(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The parts of these tensors that this rank holds.

    An operation on many `DTensor`s at once needs one mesh for all of them; their parts need none.
    """
    return tensors if _dtensor() is None else [local(each) for each in tensors]


def sample(tensor: Tensor) -> bytes | None:
    """The bytes of a few numbers of a tensor; None if it has no numbers yet.

    A write by `.data` does not raise the version, and these bytes tell of most writes.
    """
    with suppress(Exception):  # such as a parameter without a shape, or on the device "meta"
        own = local(tensor).detach().reshape(-1)
        some = own[:: max(1, own.numel() // SAMPLES)]
        found: bytes = some.clone().view(torch.uint8).cpu().numpy().tobytes()
        return found
    return None


def norms(tensors: Sequence[Tensor], kind: float = 2.0) -> list[Tensor]:
    """The norm of each of these tensors, over all ranks that hold parts of it.

    Each dimension of a mesh sends one message, for any number of tensors. The host does not wait
    for a device.

    Args:
        tensors: The tensors, or this rank's parts of them.
        kind: 2 for the Euclidean norm.
    """
    own = [_without_partial_sums(each) for each in tensors]
    parts = [_elements(local(each)) for each in own]
    numbers = iter(_powers(parts, kind))
    zero = torch.zeros((), dtype=torch.float64)
    found = [next(numbers) if part.numel() else zero.to(part.device) for part in parts]
    for group, members in _by_group(map(_groups_of, own)).items():
        got = _over_ranks([found[number] for number in members], kind, group)
        for number, each in zip(members, got, strict=True):
            found[number] = each
    if len({*map(DEVICE_AND_DTYPE, tensors)}) == 1:  # by few operations for all of them
        return [*_root(torch.stack(found), kind, tensors[0])]
    return [_root(each, kind, one) for each, one in zip(found, tensors, strict=True)]


def norm(
    tensors: Sequence[Tensor],
    kind: float = 2.0,
    *,
    beside: Tensor | None = None,
    judged: bool = False,
) -> Tensor:
    """The norm of all these tensors together, with as many messages as `norms`.

    The tensors that are split alike are one number, so that thousands of them take few operations.

    Args:
        tensors: The tensors, or this rank's parts of them.
        kind: 2 for the Euclidean norm.
        beside: A number that becomes its sum over all ranks; without a message, if all ranks are in
            one dimension of the mesh.
        judged: True to make that number larger if the norm is not finite.
    """
    own = [_without_partial_sums(each) for each in tensors]
    alike = dict[tuple[Any, ...], list[Tensor]]()
    for each in own:
        alike.setdefault(_groups_of(each), []).append(_elements(local(each)))
    found = [_together(_powers(parts, kind), kind) for parts in alike.values()]
    groups = _by_group(alike)
    rides = [ranks.world_size(group) for group in groups] == [ranks.world_size()]
    for group, members in groups.items():
        sent = [found[number] for number in members]
        if beside is not None and rides:
            sent.append(beside.to(sent[0]))
        got = _over_ranks(sent, kind, group)
        for number, each in zip(members, got, strict=False):
            found[number] = each
        if beside is not None and rides:
            beside.copy_(got[-1])
    together = _together(torch.stack([moved(each, found[0].device) for each in found]), kind)
    if beside is not None and judged:
        beside.add_((together * 0).ne(0))
    if beside is not None and not rides:
        beside.copy_(torch.as_tensor(ranks.total(beside)))
    return _root(together, kind, tensors[0])


def _powers(parts: Sequence[Tensor], kind: float) -> Tensor:
    """Of each part that has elements: the sum of their powers, or the largest magnitude.

    It is in float64, since squares may overflow float32.
    """
    filled = [part for part in parts if part.numel()]
    made: Sequence[Tensor]
    if not filled:
        return torch.zeros(0, dtype=torch.float64, device=parts[0].device)
    if all(part.element_size() > 2 for part in filled):
        made = norm_of_each(filled, kind)
    else:
        made = [vector_norm(part, kind, dtype=torch.float32) for part in filled]
    if len({*map(DEVICE_AND_DTYPE, made)}) > 1:
        made = [each.to(made[0].device, torch.float64) for each in made]
    found = torch.stack([*made]).double()
    return found if kind == float("inf") else found**kind


def _together(powers: Tensor, kind: float) -> Tensor:
    return powers.amax() if kind == float("inf") and len(powers) else powers.sum()


def _over_ranks(numbers: Sequence[Tensor], kind: float, group: Any) -> Tensor:
    """These sums of powers, or largest magnitudes, over the ranks of a group, by one message."""
    sent = torch.stack([*numbers])
    if kind != float("inf"):
        return torch.as_tensor(ranks.total(sent, group=group))
    # NaN has no defined maximum; infinity says as well that a norm is not finite.
    return torch.as_tensor(ranks.largest(sent.nan_to_num(nan=kind, posinf=kind), group=group))


def _root(total: Tensor, kind: float, tensor: Tensor) -> Tensor:
    """The norm with this sum, in the type of a tensor's norm."""
    made = total if kind == float("inf") else total ** (1 / kind)
    return made.to(torch.promote_types(tensor.dtype, torch.float32).to_real())


def _dtensor() -> Any:
    # Not imported here, since the import is slow: if nobody has imported it, no DTensor exists.
    return getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)


def _elements(part: Tensor) -> Tensor:
    return part._values() if part.is_sparse else part


def _without_partial_sums(tensor: Tensor) -> Tensor:
    """The same tensor, without partial sums: each rank holds complete elements."""
    if not is_spread(tensor) or not any(each.is_partial() for each in tensor.placements):
        return tensor
    from torch.distributed.tensor import Replicate

    places = [Replicate() if each.is_partial() else each for each in tensor.placements]
    return tensor.redistribute(placements=places)  # type: ignore[no-any-return]


def _groups_of(tensor: Tensor) -> tuple[Any, ...]:
    """The process groups over whose ranks a tensor is split."""
    if not is_spread(tensor):
        return ()
    mesh, places = tensor.device_mesh, enumerate(tensor.placements)
    dims = [dim for dim, place in places if not place.is_replicate() and mesh.size(dim) > 1]
    return tuple(map(mesh.get_group, dims))


def _by_group(found: Iterable[tuple[Any, ...]]) -> dict[Any, list[int]]:
    """By process group: the numbers of those that are split over its ranks."""
    members = dict[Any, list[int]]()
    for number, groups in enumerate(found):
        for group in groups:
            members.setdefault(group, []).append(number)
    return members

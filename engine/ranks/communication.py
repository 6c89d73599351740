"""Messages between ranks; without a process group, nothing is sent.

Only this file sends by torch.distributed, and imports it only while a process group is up.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

from .failure import AnotherRankError
from .groups import all_meet, is_distributed, on_cpu, rank, world_size

if TYPE_CHECKING:
    from torch import Tensor

Value = TypeVar("Value")
Name = TypeVar("Name", bound=Hashable)


def agreed(value: float) -> float:
    """Rank 0's value, on every rank."""
    if not all_meet():
        return value
    import torch
    import torch.distributed as dist

    number = torch.tensor(value, dtype=torch.float64)
    dist.broadcast(number, src=0, group=on_cpu())
    return float(number)


def from_first(value: Value) -> Value:
    """Rank 0's value, any object of some kilobytes, on every rank."""
    return from_rank(0, value)


def from_rank(number: int, value: Value) -> Value:
    """The value of the rank with this number, any object of some kilobytes, on every rank."""
    if not all_meet():
        return value
    import torch.distributed as dist

    values: list[Any] = [value]
    dist.broadcast_object_list(values, src=number, group=on_cpu())
    found: Value = values[0]
    return found


def any_rank(flag: bool, *, group: Any = None) -> bool:
    """True on every rank if `flag` is true on one; `group` is a process group, by default all."""
    return count(flag, group=group) > 0 if all_meet(group) else flag


def count(flag: bool, *, group: Any = None) -> int:
    """The number of ranks where `flag` is true; counted on the CPU, without a wait for a device."""
    return int(total(int(flag), group=group))


def total(value: Tensor | float, *, group: Any = None) -> Tensor | float:
    """The sum of a number or tensor over all ranks, or over the ranks of a process group.

    A number is sent on the CPU. A tensor stays on its device, and the host does not wait for it.
    """
    if not all_meet(group):
        return value
    import torch
    import torch.distributed as dist

    if not isinstance(value, torch.Tensor):
        number: float = decided([value], _sums, group=group)[0]
        return number
    own = _to_send(value)
    dist.all_reduce(own, group=on_cpu(group) if own.is_cpu else group)
    return own


def begin_total(value: Tensor | float, *, group: Any = None) -> Callable[[], Tensor | float]:
    """Begin to sum a number or tensor over all ranks; the returned function waits for the sum.

    Other work, such as a backward pass, can go on while the message is under way.
    """
    if not all_meet(group):
        return lambda: value
    import torch
    import torch.distributed as dist

    if is_tensor := isinstance(value, torch.Tensor):
        own = _to_send(value)
    else:
        own = torch.tensor(value, dtype=torch.float64)
    work: Any = dist.all_reduce(own, group=on_cpu(group) if own.is_cpu else group, async_op=True)

    def wait() -> Tensor | float:
        work.wait()
        return own if is_tensor else float(own)

    return wait


def decided(
    numbers: Sequence[float], decide: Callable[[Tensor], Tensor], *, group: Any = None
) -> list[Any]:
    """What the first rank decides from the numbers of all ranks, on every rank.

    Two messages on the CPU: all ranks send their numbers to the first rank, which sends its answer
    to all. With many ranks, this is far faster than a ring all-reduce, which visits each rank.

    Args:
        numbers: The same count on each rank, and all of one kind: int or float.
        decide: Called on the first rank alone, with a row of numbers for each rank; returns as
            many numbers as one row has.
        group: A process group, by default all ranks.
    """
    import torch
    import torch.distributed as dist

    kind = torch.int64 if all(isinstance(each, int) for each in numbers) else torch.float64
    own = torch.tensor(numbers, dtype=kind)
    if not all_meet(group):
        return decide(own[None]).tolist()
    group = on_cpu(group)
    first = dist.get_global_rank(group, 0)
    rows = own.new_empty(world_size(group), len(own)) if rank(group) == 0 else None
    dist.gather(own, None if rows is None else [*rows.unbind()], dst=first, group=group)
    if rows is not None:
        own = decide(rows).to(kind)
    dist.broadcast(own, src=first, group=group)
    return own.tolist()


def most(numbers: Sequence[int]) -> list[int]:
    """The maximum over all ranks of each element of a short list, on every rank."""
    return decided(numbers, lambda rows: rows.amax(0))


def largest(tensor: Tensor, *, group: Any = None) -> Tensor:
    """The maximum over all ranks, or over the ranks of a group, of each element of a tensor."""
    if not all_meet(group):
        return tensor
    import torch.distributed as dist

    own = _to_send(tensor)
    dist.all_reduce(own, dist.ReduceOp.MAX, group=on_cpu(group) if own.is_cpu else group)
    return own


def share(tensors: Iterable[Tensor]) -> None:
    """Copy rank 0's values into these tensors on every rank: one message per device and dtype."""
    if not all_meet():
        return
    import torch
    import torch.distributed as dist

    def kind(tensor: Tensor) -> tuple[str, str]:
        return str(tensor.device), str(tensor.dtype)

    for _, each in groupby(sorted(tensors, key=kind), key=kind):
        alike = list(each)
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in alike])
        dist.broadcast(flat, src=0, group=on_cpu() if flat.is_cpu else None)
        chunks = flat.split([tensor.numel() for tensor in alike])
        with torch.no_grad():
            for tensor, chunk in zip(alike, chunks, strict=True):
                tensor.copy_(chunk.view_as(tensor))


def gathered(value: Value, *, group: Any = None) -> list[Value]:
    """Every rank's value, any object, in the order of ranks."""
    if not all_meet(group):
        return [value]
    import torch.distributed as dist

    found: list[Any] = [None] * world_size(group)
    dist.all_gather_object(found, value, group=on_cpu(group))
    return found


def gathered_at_first(value: Value) -> list[Value] | None:
    """Every rank's value on rank 0, in the order of ranks; the other ranks get None.

    For values of some kilobytes. Rank 0 needs memory for world size times the largest value.
    """
    if not all_meet():
        return [value]
    import torch.distributed as dist

    found: list[Any] | None = [None] * world_size() if rank() == 0 else None
    dist.gather_object(value, found, dst=0, group=on_cpu())
    return found


def _sums(rows: Tensor) -> Tensor:
    return rows.sum(0)


@contextmanager
def on_all_ranks(task: str) -> Generator[None, None, None]:
    """An error that one rank raises inside is raised on all ranks, so that none waits for it."""
    raised: Exception | None = None
    try:
        yield
    except Exception as error:
        raised = error
    if any_rank(raised is not None):
        raise raised or AnotherRankError(f"another rank could not {task}; its own error says why")


def summed(numbers: Mapping[Name, float], *, group: Any = None) -> dict[Name, float]:
    """The sum over ranks of each number; a rank may lack some of them.

    If all ranks have the same names in the same order, it takes four messages of some bytes each,
    whatever the world size. Otherwise, each rank receives the numbers of all ranks.
    """
    if not is_distributed():
        return dict(numbers)
    own = list(numbers.values())
    are_whole = all(isinstance(number, int) for number in own)
    names = crc32(repr([are_whole, *numbers]).encode())
    if decided([names], _common, group=group) == [names]:
        sums = decided(own, _sums, group=group) if own else []
        return dict(zip(numbers, sums, strict=True))
    found: dict[Name, float] = {}
    for each in gathered(dict(numbers), group=group):
        for name, number in each.items():
            found[name] = found.get(name, 0) + number
    return found


def _common(rows: Tensor) -> Tensor:
    """The number that all ranks sent, or -1 if their numbers differ."""
    return rows[0].where((rows == rows[0]).all(), -1)


def send(tensor: Tensor, to: int) -> None:
    """Send a CPU tensor to another rank, which has to receive it."""
    import torch.distributed as dist

    dist.send(_bytes(tensor.contiguous()), to, group=on_cpu())


def receive(into: Tensor, source: int) -> None:
    """Receive a rank's tensor into a contiguous CPU tensor of the same dtype and shape."""
    import torch.distributed as dist

    dist.recv(_bytes(into), source, group=on_cpu())


def _bytes(tensor: Tensor) -> Tensor:
    # Not every dtype can be sent.
    import torch

    return tensor.detach().reshape(-1).view(torch.uint8)


def _to_send(tensor: Tensor) -> Tensor:
    """A copy whose elements lie in order: gloo adds them as they lie in memory on each rank."""
    own = tensor.detach().clone()
    return own if own.is_sparse else own.contiguous()

"""What ranks ask and tell one another; without a process group nothing is sent.

The one file that sends by torch.distributed, which is imported only where a process group is up.
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
    """Rank 0's value, which may be anything of some kilobytes, on every rank."""
    return from_rank(0, value)


def from_rank(number: int, value: Value) -> Value:
    """The value of the rank of this number, on every rank; anything of some kilobytes."""
    if not all_meet():
        return value
    import torch.distributed as dist

    values: list[Any] = [value]
    dist.broadcast_object_list(values, src=number, group=on_cpu())
    found: Value = values[0]
    return found


def any_rank(flag: bool, *, group: Any = None) -> bool:
    """True on every rank if `flag` is true on one; `group` is one of torch's, by default all."""
    return count(flag, group=group) > 0 if all_meet(group) else flag


def count(flag: bool, *, group: Any = None) -> int:
    """On how many ranks `flag` is true; asked on the CPU, so that the host waits for no device."""
    return int(total(int(flag), group=group))


def total(value: Tensor | float, *, group: Any = None) -> Tensor | float:
    """The sum of a number or tensor over all ranks, or those of a process group of torch's.

    A number is sent on the CPU. A tensor stays on its device, and the host does not wait for it.
    """
    if not all_meet(group):
        return value
    import torch
    import torch.distributed as dist

    if not isinstance(value, torch.Tensor):
        number: float = decided([value], _sums, group=group)[0]
        return number
    own = value.detach().clone()
    dist.all_reduce(own, group=on_cpu(group) if own.is_cpu else group)
    return own


def begin_total(value: Tensor | float, *, group: Any = None) -> Callable[[], Tensor | float]:
    """Send a number or tensor for its sum over all ranks; call what is returned to wait for it.

    What comes in between, such as a backward pass, goes on while the message is under way.
    """
    if not all_meet(group):
        return lambda: value
    import torch
    import torch.distributed as dist

    if is_tensor := isinstance(value, torch.Tensor):
        own = value.detach().clone()
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
    """What the first rank decides by the numbers of all, on every rank.

    Two messages on the CPU: all ranks send theirs to the first one, which sends its answer to all.
    Among many ranks that takes far less time than a sum in a ring, which passes by each of them.

    Args:
        numbers: As many on each rank, and of one kind: all of them whole, or not.
        decide: Called on the first rank alone, with a row of numbers for each rank; gives as many
            numbers as one row has.
        group: A process group of torch's, by default all ranks.
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
    """The largest number over all ranks in each place of a short list, on every rank."""
    return decided(numbers, lambda rows: rows.amax(0))


def largest(tensor: Tensor, *, group: Any = None) -> Tensor:
    """The largest number over all ranks, or those of a group, in each place of a tensor."""
    if not all_meet(group):
        return tensor
    import torch.distributed as dist

    own = tensor.detach().clone()
    dist.all_reduce(own, dist.ReduceOp.MAX, group=on_cpu(group) if own.is_cpu else group)
    return own


def share(tensors: Iterable[Tensor]) -> None:
    """Copy rank 0's values into these tensors, on every rank: one message a device and type."""
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
    """Every rank's value, which may be anything, in the order of ranks."""
    if not all_meet(group):
        return [value]
    import torch.distributed as dist

    found: list[Any] = [None] * world_size(group)
    dist.all_gather_object(found, value, group=on_cpu(group))
    return found


def gathered_at_first(value: Value) -> list[Value] | None:
    """Every rank's value on rank 0, in the order of ranks; the other ranks get None.

    For facts of some kilobytes. Rank 0 holds as many times the largest one as there are ranks.
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
    """What one rank raises inside is raised on all, so that none waits for it."""
    raised: Exception | None = None
    try:
        yield
    except Exception as error:
        raised = error
    if any_rank(raised is not None):
        raise raised or AnotherRankError(f"another rank could not {task}; its own error says why")


def summed(numbers: Mapping[Name, float], *, group: Any = None) -> dict[Name, float]:
    """The sum over ranks of each number; a rank may lack some of them.

    Four messages of some bytes, whose size does not depend on the number of ranks, where all ranks
    have the same names in the same order. Where they have not, each rank hears of all numbers.
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
    """The number that all ranks have sent, or -1."""
    return rows[0].where((rows == rows[0]).all(), -1)


def send(tensor: Tensor, to: int) -> None:
    """Send a tensor that lies on the CPU to another rank, which has to receive it."""
    import torch.distributed as dist

    dist.send(_bytes(tensor.contiguous()), to, group=on_cpu())


def receive(into: Tensor, source: int) -> None:
    """Wait for what a rank sends, in a contiguous tensor of the same type and shape on the CPU."""
    import torch.distributed as dist

    dist.recv(_bytes(into), source, group=on_cpu())


def _bytes(tensor: Tensor) -> Tensor:
    # Not every type can be sent.
    import torch

    return tensor.detach().reshape(-1).view(torch.uint8)

"""What ranks ask and tell one another; without a process group nothing is sent.

The one file that knows pytorch-ignite's distributed layer, which is imported only once a process
group is up, or is to be.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Value = TypeVar("Value")


class Alone:
    """Whether this process acts as the only rank."""

    is_on = False


def is_distributed() -> bool:
    """True if a process group is up."""
    if Alone.is_on:
        return False
    group = sys.modules.get("torch.distributed")
    return group is not None and group.is_available() and group.is_initialized()


def rank() -> int:
    """This process's number among the ranks, from 0."""
    return int(_ignite().get_rank()) if is_distributed() else 0


def local_rank() -> int:
    """This process's number among the ranks of its machine, from 0."""
    return int(_ignite().get_local_rank()) if is_distributed() else 0


def world_size() -> int:
    """How many ranks there are."""
    return int(_ignite().get_world_size()) if is_distributed() else 1


def local_world_size() -> int:
    """How many ranks there are on this machine."""
    return int(_ignite().get_nproc_per_node()) if is_distributed() else 1


def agreed(value: float) -> float:
    """Rank 0's value, on every rank."""
    return float(_ignite().broadcast(value, src=0)) if is_distributed() else value


def first(number: int) -> int:
    """Rank 0's whole number, of up to 63 bits, on every rank."""
    if not is_distributed():
        return number
    import torch

    held = torch.tensor([number], dtype=torch.int64)
    share([held])
    return int(held)


def any_rank(flag: bool) -> bool:
    """True on every rank if `flag` is true on one."""
    if not is_distributed():
        return flag
    return bool(_ignite().all_reduce(int(flag), "MAX"))


def count(flag: bool) -> int:
    """On how many ranks `flag` is true; asked on the CPU, so that the host waits for no device."""
    if not is_distributed():
        return int(flag)
    import torch
    import torch.distributed as dist

    number = torch.tensor(int(flag))
    dist.all_reduce(number, group=_group_on_cpu())
    return int(number)


def total(value: Tensor | float) -> Tensor | float:
    """The sum of a number or tensor over all ranks."""
    if not is_distributed():
        return value
    own = value if isinstance(value, int | float) else value.clone()
    return _ignite().all_reduce(own, "SUM")  # type: ignore[no-any-return]


def share(tensors: Iterable[Tensor]) -> None:
    """Copy rank 0's values into these tensors, on every rank."""
    for tensor in tensors if is_distributed() else ():
        tensor.copy_(_ignite().broadcast(tensor.clone(), src=0))


def gathered(value: Value) -> list[Value]:
    """Every rank's value, which may be anything, in the order of ranks."""
    if not is_distributed():
        return [value]
    return [each for (each,) in _ignite().all_gather((value,))]  # ignite gathers a tuple as it is


@contextmanager
def on_all_ranks(task: str) -> Generator[None, None, None]:
    """What one rank raises inside is raised on all, so that none waits for it."""
    raised: Exception | None = None
    try:
        yield
    except Exception as error:
        raised = error
    if any_rank(raised is not None):
        raise raised or RuntimeError(f"another rank could not {task}; its own error says why")


@contextmanager
def alone() -> Generator[None]:
    """Within a `with` block, act as the only rank: nothing is sent to others or awaited of them.

    For trials whose outcome differs from rank to rank. It holds for the whole process.
    """
    before, Alone.is_on = Alone.is_on, True
    try:
        yield
    finally:
        Alone.is_on = before


def start(backend: str) -> None:
    """Make the process group that the environment describes."""
    _ignite().initialize(backend)


def end() -> None:
    """Wait for the other ranks, and leave the process group."""
    _ignite().barrier()
    _ignite().finalize()


_on_cpu: list[Any] = []
"""The default group, and a group of the same ranks that communicates on the CPU."""


def _group_on_cpu() -> Any:
    import torch.distributed as dist

    if "gloo" in dist.get_backend():
        return None
    if not _on_cpu or _on_cpu[0] is not dist.group.WORLD:
        _on_cpu[:] = [dist.group.WORLD, dist.new_group(backend="gloo")]
    return _on_cpu[1]


def _ignite() -> Any:
    import ignite.distributed as idist

    return idist

"""The current process group, this process's rank in it, and its side group for CPU messages."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from typing import Any


class Alone:
    """Whether this process acts as the only rank."""

    is_on = False
    handler: str | None = None
    """The running handler that only this rank calls."""
    meet: Any = None
    """What meets the others before this rank's next message; None where all ranks come anyway."""
    was_asked = False  # and has answered as the only rank, since no process group was up


def is_distributed() -> bool:
    """True if a process group is up."""
    if Alone.is_on:
        return False
    group = sys.modules.get("torch.distributed")
    return group is not None and group.is_available() and group.is_initialized()


def default_store() -> Any:
    """The store of the process group: a rank writes to it without waiting for other ranks.

    Raises:
        ValueError: No process group is up.
    """
    c10d: Any = import_module("torch.distributed.distributed_c10d")
    return c10d._get_default_store()


@contextmanager
def alone() -> Generator[None]:
    """Within a `with` block, act as the only rank: send nothing to others, and wait for none.

    For trials whose outcome differs from rank to rank. It affects the whole process.
    """
    before, Alone.is_on = Alone.is_on, True
    try:
        yield
    finally:
        Alone.is_on = before


def on_this_rank(function: Callable[[Any], object], name: str) -> Callable[[Any], object]:
    """Wrap a handler that only this rank calls: a collective inside it then raises an error."""

    def call(state: Any) -> object:
        outer, Alone.handler = Alone.handler, name
        try:
            return function(state)
        finally:
            Alone.handler = outer

    return call


def all_meet(group: Any = None) -> bool:
    """True if there are other ranks to send to, and all of them reach this call.

    Raises:
        RuntimeError: A handler that only this rank calls would wait for the other ranks.
    """
    if not is_distributed():
        return False
    if Alone.handler is not None and world_size(group) > 1:
        raise RuntimeError(
            f"{Alone.handler} is of this rank alone, and would wait for the other ranks in what "
            "all of them do together. Attach it on every rank; on_rank, a handler's attribute "
            "rank, and functions under `if ranks.rank() == 0:` are for what needs no other rank"
        )
    # Of a group of some ranks, as those of one stage of a pipeline, the others send nothing here.
    if Alone.meet is not None and world_size(group) == world_size():
        meet_first()
    return True


def meet_first() -> None:
    """Meet the other ranks, once in a block of `Meetings.first`."""
    if (meet := Alone.meet) is not None:
        Alone.meet = None
        meet()


def rank(group: Any = None) -> int:
    """This process's number among all ranks, or among the ranks of a process group, from 0."""
    return int(_torch().get_rank(group)) if is_distributed() else _alone(0)


def world_size(group: Any = None) -> int:
    """How many ranks there are, or how many a process group has."""
    return int(_torch().get_world_size(group)) if is_distributed() else _alone(1)


def _alone(number: int) -> int:
    Alone.was_asked = True
    return number


def local_rank() -> int:
    """This process's number among the ranks of its machine, from 0.

    Most launchers set it in the environment. Without it, the ranks compare the names of their
    machines, so all ranks have to make the first call.
    """
    return _known().local_rank if is_distributed() else _alone(0)


def local_world_size() -> int:
    """How many ranks there are on this machine; found like `local_rank`."""
    if not is_distributed():
        return 1
    said = os.environ.get("LOCAL_WORLD_SIZE")
    return int(said) if said is not None else len(_known().neighbours)


def on_cpu(group: Any = None) -> Any:
    """A group of the same ranks that sends over the CPU, so that the host waits for no device.

    This is the group itself if it has a CPU backend such as gloo, else a gloo group that is made on
    the first call. All ranks of the group have to make that call together; `Engine.run` does so
    before the first batch.
    """
    dist = _torch()
    group = group or dist.group.WORLD
    if "cpu" in dist.get_backend_config(group):
        return group
    sides = _known().sides
    if group not in sides:
        sides[group] = dist.new_group(
            dist.get_process_group_ranks(group),
            timeout=_timeout_of(group),
            backend="gloo",
            use_local_synchronization=group is not dist.group.WORLD,
        )
    return sides[group]


class Known:
    """What is known of the current default group."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.sides: dict[Any, Any] = {}
        """By group: the group of the same ranks that sends over the CPU."""

    @cached_property
    def local_rank(self) -> int:
        """This process's number on its machine, as the launcher has set it before the first call.

        Later, ignite's handlers may overwrite the variable with Slurm's number.
        """
        said = os.environ.get("LOCAL_RANK")
        return self.neighbours.index(rank()) if said is None else int(said)

    @cached_property
    def neighbours(self) -> list[int]:
        """The ranks of this machine."""
        names: list[Any] = [None] * world_size()
        _torch().all_gather_object(names, socket.gethostname(), group=on_cpu())
        return [n for n, name in enumerate(names) if name == names[rank()]]


_latest: list[Known] = []


def _known() -> Known:
    world = _torch().group.WORLD
    if not _latest or _latest[0].group is not world:
        _latest[:] = [Known(world)]
    return _latest[0]


def _timeout_of(group: Any) -> Any:
    """The group's timeout, for its side group to have the same."""
    import torch

    (kind, *_) = _torch().get_backend_config(group).split(":")
    options = group._get_backend(torch.device(kind)).options
    return getattr(options, "_timeout", None)


def _torch() -> Any:
    import torch.distributed as dist

    return dist

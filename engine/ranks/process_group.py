"""The process group of the ranks that a launcher has started: torchrun, Slurm or MPI."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import uuid4

from .communication import count
from .failure import note_failure, write_error_file
from .groups import Alone, is_distributed, local_rank, world_size
from .meetings import Meetings

PLACE = "camshaft/attempts"
LAST = 0.1
"""Seconds that torch's threads get to release sent tensors before the process ends.

A gloo thread may still hold tensors of the last message, and needs Python to release them. If
Python is shutting down by then, the thread aborts the process (SIGABRT, pytorch#190489), and the
launcher reports this instead of how the run ended. torch has no call that waits for these threads.
"""
TORCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
SLURM = ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),  # Open MPI
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),  # MVAPICH2
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),  # MPICH, Intel MPI
)
"""By implementation: the variables of the rank, the world size and the local rank."""


@contextmanager
def process_group(backend: str | None = None, *, timeout: float | None = None) -> Generator[None]:
    """Join the process group of the ranks that torchrun, srun or mpirun started; leave it after.

    For a `with` block or as a decorator. Without such a launcher, or if a process group is already
    up, it does nothing. Each rank's CUDA device is the device with its local rank, or the only
    device that it sees.

    A rank that raises inside tells the reason to the other ranks and to torchrun's summary.

    >>> from camshaft import ranks
    >>> with ranks.process_group():
    ...     print(ranks.rank(), ranks.world_size())
    0 1

    Args:
        backend: `"nccl"`, `"gloo"` or another of torch's; by default `"nccl"` where there is CUDA,
            else `"gloo"`.
        timeout: Seconds that a rank waits for another rank, in a collective or at the start, before
            it fails; by default torch's: 600 for NCCL, 1800 for others.

    Raises:
        TimeoutError: Some of the ranks that torchrun started did not come.
        RuntimeError: mpirun has started ranks on several machines without `MASTER_ADDR`.
    """
    if (end := _begin(backend, timeout)) is None:
        yield
        return
    try:
        yield
        if world_size() > 1:
            Meetings.outside().leave()
        count(True)  # waits for the others, of which one may still fail
    except BaseException as error:
        note_failure(error)
        write_error_file(error)
        time.sleep(LAST)
        raise  # without leaving the group, which would wait for the other ranks
    end()
    time.sleep(LAST)


def join_ranks(backend: str | None) -> None:
    """Join the ranks like `process_group` does, and leave them when the process ends."""
    was_asked, end = Alone.was_asked, _begin(backend)
    if end is not None:
        atexit.register(_end_process, end)
    if end is not None and was_asked and world_size() > 1:
        raise RuntimeError(
            "ranks.prepare(model) joins the ranks, and something before it, such as a loader or a "
            "seed, was made for one process: call it first, or in `with ranks.process_group():`"
        )


def _end_process(end: Callable[[], None]) -> None:
    if failure := getattr(sys, "last_value", None):  # it has ended the script
        try:
            raise failure
        except BaseException as error:
            note_failure(error)
            write_error_file(error)
    elif is_distributed():
        end()  # without a wait for the others, which may need this rank after its sys.exit()
        time.sleep(LAST)


def _begin(backend: str | None, timeout: float | None = None) -> Callable[[], None] | None:
    """Make the process group if a launcher has started ranks; return the function that leaves."""
    if is_distributed() or Alone.is_on or (by := launcher()) is None:
        return None
    if backend is None:
        import torch

        backend = "nccl" if torch.cuda.is_available() else "gloo"
    end = (_join_by_ignite if by == "Slurm" else _join)(backend, timeout)
    local_rank()  # cached now, since ignite overwrites it with Slurm's number under any launcher
    return end


def _join(backend: str, timeout: float | None) -> Callable[[], None]:
    """Make the process group under torchrun or mpirun; return the function that leaves it."""
    import torch

    dist: Any = import_module("torch.distributed")  # which does not declare its stores
    environ = os.environ
    number, size = int(environ["RANK"]), int(environ["WORLD_SIZE"])
    limit = _limit(backend) if timeout is None else timedelta(seconds=timeout)
    if torch.cuda.is_available():
        # Modulo, since a rank may see only the one device that it was given.
        torch.cuda.set_device(int(environ["LOCAL_RANK"]) % torch.cuda.device_count())
    address = environ.setdefault("MASTER_ADDR", "127.0.0.1")
    port = int(environ.setdefault("MASTER_PORT", "15000"))
    store = None
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        of_agent = dist.TCPStore(address, port, is_master=False, timeout=limit)
        store = store_of_attempt(of_agent, number, size, limit)
    dist.init_process_group(backend, store=store, rank=number, world_size=size, timeout=limit)
    leave: Callable[[], None] = dist.destroy_process_group
    return leave


def _join_by_ignite(backend: str, timeout: float | None) -> Callable[[], None]:
    """Make the process group under srun, by ignite; return the function that leaves it."""
    import ignite.distributed as idist

    given = {} if timeout is None else {"timeout": timedelta(seconds=timeout)}
    idist.initialize(backend, **given)
    leave: Callable[[], None] = idist.finalize
    return leave


def _limit(backend: str) -> timedelta:
    """Torch's default timeout for this backend."""
    return timedelta(minutes=10 if "nccl" in backend else 30)


def launcher() -> str | None:
    """The launcher that started this process as one of several ranks, or None.

    Under MPI, this also sets torch's variables in the environment.
    """
    environ = os.environ
    if all(name in environ for name in TORCH):
        return "torchrun"
    for names in MPI:
        if all(name in environ for name in names):
            _translate(names)
            return "MPI"
    if all(name in environ for name in SLURM) and int(environ["SLURM_NTASKS"]) > 1:
        return "Slurm"
    return None


def _translate(names: tuple[str, str, str]) -> None:
    environ = os.environ
    on_machine = environ.get(names[2].replace("RANKID", "NRANKS").replace("_RANK", "_SIZE"))
    if "MASTER_ADDR" not in environ and on_machine != environ[names[1]]:
        raise RuntimeError(
            f"MPI has started {environ[names[1]]} ranks, {on_machine} of them on this machine, and "
            "none knows where rank 0 is: pass its address, "
            "mpirun -x MASTER_ADDR=<host of rank 0> (Open MPI), -genv MASTER_ADDR <host> (MPICH)"
        )
    environ.update({name: environ[theirs] for name, theirs in zip(TORCH, names, strict=True)})


def store_of_attempt(store: Any, rank: int, world_size: int, timeout: timedelta) -> Any:
    """A part of the agent's store that only the ranks of this attempt use.

    After a failure, torchrun starts all ranks again and gives them the same store. A rank may then
    read addresses of dead processes before the other ranks have written new ones, and torch fails
    with "connectFullMesh failed", or hangs. torchrun gives no attempt number that is the same on
    all hosts (TORCHELASTIC_RESTART_COUNT counts on one host). So rank 0 chooses a unique name, and
    each other rank asks for it with a unique question.

    Raises:
        TimeoutError: Some ranks did not come in time; on rank 0, the message says which.
    """
    dist: Any = import_module("torch.distributed")  # which does not declare its stores
    places = dist.PrefixStore(PLACE, store)
    if rank == 0:
        name = _answer(places, world_size, timeout)
    else:
        own = uuid4().hex
        places.set(f"question/{rank}", own)
        try:
            places.wait([f"answer/{own}"], timeout)
        except RuntimeError as error:  # torch's DistStoreError
            raise TimeoutError(
                f"rank {rank} waited {timeout.total_seconds():g} s for rank 0 to begin the process "
                "group; the log of rank 0 says why it did not"
            ) from error
        name = places.get(f"answer/{own}").decode()
        places.set(f"{name}/{rank}", "")
    return dist.PrefixStore(f"{PLACE}/{name}", store)


def _answer(places: Any, world_size: int, timeout: timedelta) -> str:
    """Answer the other ranks until each has confirmed it; return the name of the attempt."""
    name, answered = uuid4().hex, dict[int, str]()
    missing = list(range(1, world_size))
    end = time.monotonic() + timeout.total_seconds()
    while missing:
        for rank in missing:
            # Questions of dead processes are answered too, but nobody reads these answers.
            if places.check([f"question/{rank}"]):
                question = places.get(f"question/{rank}").decode()
                if answered.get(rank) != question:
                    answered[rank] = question
                    places.set(f"answer/{question}", name)
        missing = [rank for rank in missing if not places.check([f"{name}/{rank}"])]
        if missing and time.monotonic() > end:
            raise TimeoutError(
                f"ranks {missing} of {world_size} did not join the process group within "
                f"{timeout.total_seconds():g} s; their logs say why"
            )
        time.sleep(0.01 if missing else 0)
    return name

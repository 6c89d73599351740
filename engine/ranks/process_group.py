"""The process group of whoever has started this process: torchrun, Slurm or MPI.

The one file that knows pytorch-ignite's `initialize`, which finds the machine of rank 0 in a job of
Slurm, makes the group and sets the device.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from .communication import count
from .groups import is_distributed

TORCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
SLURM = ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),  # Open MPI
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),  # MVAPICH2
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),  # MPICH, Intel MPI
)
"""By implementation: the rank, the number of ranks, and the rank on its machine."""


@contextmanager
def process_group(backend: str | None = None) -> Generator[None]:
    """Inside a `with` block, or a function, take part in what torchrun, srun or mpirun started.

    A process that none of them has started is alone, and nothing happens; the same where a process
    group is there already. Each rank's CUDA device is the one of its number on the machine.

    >>> from camshaft import ranks
    >>> with ranks.process_group():
    ...     print(ranks.rank(), ranks.world_size())
    0 1

    Args:
        backend: `"nccl"`, `"gloo"` or another of torch's; by default `"nccl"` where there is CUDA.

    Raises:
        RuntimeError: mpirun has started ranks on several machines without `MASTER_ADDR`.
    """
    by = None if is_distributed() else launcher()
    if by is None:
        yield
        return
    if backend is None:
        import torch

        backend = "nccl" if torch.cuda.is_available() else "gloo"
    # In a job of Slurm, ignite takes Slurm's ranks for those of torchrun and mpirun.
    hidden = () if by == "Slurm" else ("SLURM_JOB_ID",)
    import ignite.distributed as idist

    with _without(hidden):
        idist.initialize(backend)
    yield
    # Not after an error: it would wait for the other ranks, and hide the error meanwhile.
    count(True)  # waits for the others
    with _without(hidden):
        idist.finalize()


def launcher() -> str | None:
    """Who has started this process as one of several: a name, or None.

    The ranks of MPI get torch's names in the environment.
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


@contextmanager
def _without(names: tuple[str, ...]) -> Generator[None]:
    """Hide variables of the environment meanwhile."""
    hidden = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


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

"""Who starts ranks is recognised; what rank 0 does alone or first, and its errors."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from camshaft import ranks

ANSWER = """
import os
import ignite.distributed as idist
import torch.distributed as dist
from camshaft import ranks

job = os.environ.get("SLURM_JOB_ID")
is_srun = job is not None and not {"RANK", "OMPI_COMM_WORLD_RANK"} & os.environ.keys()
os.environ.pop = None  # nothing is hidden from anybody
asked, initialize = [], idist.initialize
idist.initialize = lambda *given, **named: asked.append(given) or initialize(*given, **named)
with ranks.process_group():
    assert ranks.is_distributed() and dist.get_backend() == "gloo"
    assert ranks.count(ranks.rank() < 2) == 2
    with ranks.process_group():  # there is one already
        numbers = ranks.gathered((ranks.rank(), ranks.local_rank(), ranks.world_size()))
    assert bool(asked) == is_srun
    assert idist.get_rank() == ranks.rank()
    assert ranks.local_rank() == numbers[ranks.rank()][1]  # whatever ignite has written down
    print(ranks.rank(), numbers, flush=True)
assert not ranks.is_distributed()
assert os.environ.get("SLURM_JOB_ID") == job
"""
OF_TORCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def torchrun(rank):
    return {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}


def open_mpi(rank):
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    values = (rank, 2, rank, 2)
    return {f"OMPI_COMM_WORLD_{name}": str(n) for name, n in zip(names, values, strict=True)}


def mvapich(rank):
    return {name.replace("OMPI", "MV2"): value for name, value in open_mpi(rank).items()}


def mpich(rank):
    names = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    return dict(zip(names, open_mpi(rank).values(), strict=True))


def slurm(rank, tasks=2, nodes=1):
    return {
        **{"SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
        **{"SLURM_NTASKS": str(tasks), "SLURM_JOB_NUM_NODES": str(nodes)},
        **{"SLURM_JOB_NODELIST": "localhost"},
    }


def free_port():
    """One of those that ignite makes of the number of a job."""
    for port in range(15_000 + os.getpid() % 9_000, 25_000):
        with socket.socket() as attempt:
            if attempt.connect_ex(("localhost", port)):
                return port
    raise AssertionError("no port is free")


def answers(processes, environments):
    """What ranks with these environments find."""
    port = free_port()
    job = {"SLURM_JOB_ID": f"77{port - 15_000:04}"}

    def run(environment):
        given = {"MASTER_PORT": str(port)} | environment
        given |= job if "SLURM_NTASKS" in environment else {}
        return processes.run(ANSWER, env=given)

    with ThreadPoolExecutor(2) as pool:
        return [each.stdout.split(maxsplit=1) for each in pool.map(run, environments)]


@pytest.mark.parametrize(
    "launch",
    [
        torchrun,
        open_mpi,
        pytest.param(mvapich, marks=pytest.mark.slow),
        pytest.param(mpich, marks=pytest.mark.slow),
        slurm,
        pytest.param(
            lambda rank: slurm(0, nodes=2) | torchrun(rank) | {"MASTER_ADDR": "localhost"},
            marks=pytest.mark.slow,
        ),
        pytest.param(lambda rank: slurm(0) | open_mpi(rank), marks=pytest.mark.slow),
    ],
    ids=["torchrun", "open_mpi", "mvapich", "mpich", "slurm", "torchrun in slurm", "mpi in slurm"],
)
def test_whoever_has_started_the_ranks_is_recognised(processes, launch):
    found = answers(processes, [launch(rank) for rank in (0, 1)])
    assert found == [[str(rank), "[(0, 0, 2), (1, 1, 2)]\n"] for rank in (0, 1)]


SHELL_OF_A_JOB = slurm(0, tasks=4) | {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": ""}


@pytest.mark.parametrize("environment", [{}, slurm(0, tasks=1), SHELL_OF_A_JOB])
def test_alone_there_is_no_group(monkeypatch, environment):
    for name in (*OF_TORCH, *slurm(0)):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        if value:
            monkeypatch.setenv(name, value)
    with ranks.process_group():
        assert not ranks.is_distributed()


def test_mpi_on_several_machines_needs_the_address_of_the_first_rank(monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    for start in (open_mpi, mpich):
        for name, value in start(0).items():
            monkeypatch.setenv(name, "4" if "SIZE" in name and "LOCAL" not in name else value)
        with (
            pytest.raises(RuntimeError, match=r"has started 4 ranks, 2 of them on this machine"),
            ranks.process_group(),
        ):
            pass


RANK_ZERO = """
import sys, time
from pathlib import Path
from camshaft import Engine, Events, ranks

directory = Path(sys.argv[1])
with ranks.process_group():
    rank = ranks.rank()

    @ranks.rank_zero_only
    def which(word):
        return (word, rank)

    assert which("rank") == (None if rank else ("rank", 0))
    assert which.__name__ == "which"

    engine = Engine(lambda state, batch: None)
    engine.on(Events.EPOCH_COMPLETED)(which)  # a handler, too
    engine.run("ab", max_epochs=1)

    prepared = directory / "prepared"
    for local in (False, True):
        with ranks.rank_zero_first(local=local):
            if rank == 0:
                time.sleep(0.1)
                prepared.touch()
            assert prepared.exists()

    @ranks.rank_zero_first()
    def ready():
        return (directory / "ready").exists() or (directory / "ready").touch()

    assert ranks.gathered(ready()) == [None, True]

    @ranks.rank_zero_only
    def fails():
        raise OSError("the disk is full")

    def fails_first():
        with ranks.rank_zero_first():
            assert rank == 0, "the block of another rank was run"
            raise OSError("the disk is full")

    for call in (fails, fails_first):
        try:
            call()
        except OSError:
            assert rank == 0
        except RuntimeError as error:
            assert rank == 1 and "another rank could not" in str(error), error
        else:
            raise AssertionError(call)
    assert ranks.total(1) == 2  # they are still in step
"""


def test_what_rank_0_does_alone_or_first_and_its_errors_on_every_rank(processes, tmp_path):
    processes.run_ranks(2, RANK_ZERO, tmp_path)


def test_alone_a_process_is_rank_0():
    assert ranks.local_rank() == 0
    assert (ranks.count(True), ranks.count(False)) == (1, 0)
    with ranks.rank_zero_first():
        pass
    assert ranks.rank_zero_only(lambda: 3)() == 3
    with pytest.raises(ZeroDivisionError), ranks.rank_zero_first(local=True):
        raise ZeroDivisionError


@pytest.mark.slow
def test_a_run_of_one_process_imports_nothing_of_ignite(processes, tmp_path):
    script = """
        import sys, torch
        from camshaft import ranks, supervised
        from camshaft.handlers import Checkpoint, Validate

        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
        data = [(torch.ones(2, 1), torch.ones(2, 1))] * 3
        engine.add(Validate(data), Checkpoint(sys.argv[1], resume=True))
        with ranks.process_group():
            engine.run(data, max_epochs=2)
        assert "ignite" not in sys.modules
    """
    processes.run(script, tmp_path / "run", fresh=True)


ALONE = """
import torch
from camshaft import supervised

model = torch.nn.Linear(2, 1)
engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), torch.nn.functional.mse_loss)
engine.run([(torch.ones(4, 2), torch.ones(4, 1))] * 3, max_epochs=1)
"""


@pytest.mark.slow
def test_under_torchrun_a_script_whose_processes_do_not_join_is_told(processes, tmp_path):
    (script := tmp_path / "train.py").write_text(ALONE)
    result = processes.torchrun(script)
    said = "torchrun has started 2 processes of this script, which have not joined: each one trains"
    assert result.stderr.count(said) == 2
    script.write_text(ALONE.replace("engine.run", "from camshaft import ranks\nengine.evaluate"))
    script.write_text(script.read_text().replace(", max_epochs=1", ""))
    assert "UserWarning" not in processes.torchrun(script).stderr

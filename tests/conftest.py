"""One thread for torch, here and in the processes that tests start.

What tests train is too small for more to help, and threads that wait for each other on a busy
machine take many times as long.
"""

import math
import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported, so before it is

KEEP = "best(1, 'loss', mode='min') | latest(2)"


@pytest.fixture
def save(tmp_path):
    """Writes a checkpoint to `run` and gives its path."""
    from camshaft.handlers.checkpoint.directory import write_checkpoint
    from camshaft.handlers.checkpoint.format import Manifest
    from camshaft.handlers.checkpoint.snapshot import Snapshot
    from camshaft.handlers.checkpoint.staging import streamed

    empty = Snapshot({"objects": {}}, {"train": {}})

    def write_one(iteration, loss=math.nan, keep=KEEP, metrics=(), **more):
        metrics = {"loss": loss, **dict(metrics)}
        manifest = Manifest(iteration=iteration, metrics=metrics, keep=keep, **more)
        return write_checkpoint(tmp_path / "run", streamed(empty), manifest).path

    return write_one


@pytest.fixture
def camshaft(capsys):
    """Carries out a command line; gives the exit code, the lines printed and those of errors."""
    from camshaft.__main__ import main

    def carry_out(*arguments):
        capsys.readouterr()
        code = main(list(map(str, arguments)))
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err.splitlines()

    return carry_out

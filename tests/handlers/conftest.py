"""Checkpoints to look at, a call of the command line, and runs that are paused."""

import math

import pytest

from camshaft import Events, State
from camshaft.__main__ import main
from camshaft.handlers.checkpoint.directory import Directory
from camshaft.handlers.checkpoint.format import Manifest
from camshaft.handlers.checkpoint.save.snapshot import Snapshot

KEEP = "best(1, 'loss', mode='min') | latest(2)"


@pytest.fixture
def save(tmp_path):
    """Writes a checkpoint to `run` and gives its path."""
    empty = Snapshot({"state.json": {"objects": {}}}, {"train": {}})

    def write_one(iteration, loss=math.nan, keep=KEEP, metrics=(), **more):
        metrics = {"loss": loss, **dict(metrics)}
        manifest = Manifest(iteration=iteration, metrics=metrics, keep=keep, **more)
        return Directory(tmp_path / "run").write(empty.streamed(), manifest).path

    return write_one


@pytest.fixture
def camshaft(capsys):
    """Carries out a command line; gives the exit code, the lines printed and those of errors."""

    def carry_out(*arguments):
        capsys.readouterr()
        code = main(list(map(str, arguments)))
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err.splitlines()

    return carry_out


@pytest.fixture
def paused():
    """Runs an engine to an iteration, and gives the state as if it came from a checkpoint."""

    def run(engine, data, at, *, max_epochs=2):
        engine.on(Events.ITERATION_COMPLETED(at=at))(lambda state: state.stop("pause"))
        saved = engine.run(data, max_epochs=max_epochs).state_dict()
        state = State()
        state.load_state_dict(saved)
        return state

    return run

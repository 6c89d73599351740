"""Checkpoints to look at, a call of the command line, and runs that are paused or fail."""

import math
import pickle

import pytest

from camshaft import Events, State
from camshaft.__main__ import main
from camshaft.handlers.checkpoint.directory import Directory
from camshaft.handlers.checkpoint.format import Manifest
from camshaft.handlers.checkpoint.save.snapshot import Snapshot

AT_4 = Events.ITERATION_COMPLETED(at=4)
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


@pytest.fixture
def fail_and_resume():
    """Runs an engine that fails after a save, then one that goes on from there.

    `between` is called before the second one is built.
    """

    def run(build, save=AT_4, *, fail_at=6, data=range(8), max_epochs=1, between=lambda: None):
        saved, first = [], build(fail_at=fail_at)
        first.on(save)(lambda state: state.save("test"))
        first.on(Events.SAVING)(lambda state: saved.append(pickle.dumps(state.state_dict())))
        with pytest.raises(RuntimeError, match="interrupted"):
            first.run(data, max_epochs=max_epochs)
        between()
        second = build()
        if saved:  # else the run starts anew
            second.on(Events.LOADING)(lambda state: state.load_state_dict(pickle.loads(saved[-1])))
        second.run(data, max_epochs=max_epochs)

    return run

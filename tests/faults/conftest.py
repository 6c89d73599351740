"""What the fault tests share: a small run that is exactly reproducible, and processes that fail.

The faults are injected below Python's file functions: by an audit hook, which hears of each
operation before it happens, and by the kernel's limit on the size of files. So they do not depend
on how checkpoints are written.
"""

import os
import shutil
import signal
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Events, supervised
from camshaft.handlers import latest
from camshaft.handlers.checkpoint import Checkpoint

INPUTS = torch.linspace(-1, 1, 36).reshape(9, 4)
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"}
PROMPTLY = {"retries": 0} if "retries" in {each.name for each in fields(Checkpoint)} else {}


def train(directory=None, until=3, *, seed=0, before=None, frozen=False, **options):
    """A run that saves after each iteration and resumes what is there; its weights and losses."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    model[0].requires_grad_(not frozen)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    if directory is not None:
        options = {"when": Events.ITERATION_COMPLETED, "keep": latest(2), "resume": True} | options
        engine.add(Checkpoint(directory, **PROMPTLY, **options))
    if before is not None:
        engine.on(Events.STARTED)(lambda state: before())
    loader = DataLoader(TensorDataset(INPUTS, INPUTS[:, :1]), 3, shuffle=True)
    began = []
    engine.on(Events.STARTED)(lambda state: began.append(state.iteration))
    weights = [each.clone() for each in model.state_dict().values()]
    try:
        engine.run(loader, max_iterations=until)
    except BaseException:
        same = all(map(torch.equal, weights, model.state_dict().values()))
        print("weights", "unchanged" if same else "changed")
        raise
    drawn = torch.rand(3).tolist()
    momentum = [
        each["momentum_buffer"].tolist() for each in optimizer.state_dict()["state"].values()
    ]
    return SimpleNamespace(
        began=began[0],
        outcome=([each.tolist() for each in model.state_dict().values()], momentum, drawn),
    )


def load(path):
    """Load one checkpoint into an engine that then does nothing."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    engine.add(Checkpoint(Path(path).parent, resume=path))
    engine.run([], max_iterations=0)


def listen(act, directory):
    """Call `act(name, arguments)` before each operation that changes files; for a child's life."""
    place = str(directory)

    def hear(event, arguments):
        if event in CHANGES:
            act(event, arguments)
        elif event == "open" and isinstance(arguments[2], int):
            path, writes = arguments[0], arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and isinstance(path, str | bytes) and os.fsdecode(path).startswith(place):
                act(event, arguments)

    def wrapped(name):
        original = getattr(os, name)

        def call(descriptor, *rest):
            act(f"os.{name}", (descriptor,))
            return original(descriptor, *rest)

        setattr(os, name, call)

    for name in ("fsync", "fdatasync", "write", "writev", "pwrite", "ftruncate"):
        if hasattr(os, name):
            wrapped(name)
    sys.addaudithook(hear)


def at_operation(number, directory, act):
    """What a run's `before` may be: call `act(name)` at one operation that follows."""
    seen = 0

    def count(name, arguments):
        nonlocal seen
        seen += 1
        if seen == number:
            act(name)

    return lambda: listen(count, directory)


def failing(number, code, directory):
    """What a run's `before` may be: one operation that follows fails with this error."""

    def fail(name):
        raise OSError(code, os.strerror(code))

    return at_operation(number, directory, fail)


def kill(name=None):
    os.kill(os.getpid(), signal.SIGKILL)


def leftovers(directory):
    return sorted(path.name for path in Path(directory).iterdir() if path.name.startswith("."))


def goes_on(run, whole, seed=1, **options):
    """See a run go on to its end as if nothing had happened; the iteration it began with."""
    resumed = train(run, until=5, seed=seed, **options)
    assert resumed.outcome == whole
    assert leftovers(run) == []
    return resumed.began


@pytest.fixture(scope="session")
def faults(in_child):
    """The functions above, since tests cannot import them, and two in a process of its own."""

    def ended(run, before, **options):
        """How a process ended in which a third save is hit: its exit status."""
        return in_child(lambda: train(run, until=3, before=before, **options).began)[1]

    def failure_of(run, before, **options):
        """What a third save ended with there, or None: number and text of the error."""

        def task():
            try:
                train(run, until=3, before=before, **options)
            except OSError as error:
                return [error.errno, str(error)]
            return None

        failed, status = in_child(task)
        assert status == 0
        return failed

    return SimpleNamespace(
        **{"train": train, "load": load, "in_child": in_child, "listen": listen, "kill": kill},
        **{"at_operation": at_operation, "failing": failing, "leftovers": leftovers},
        **{"goes_on": goes_on, "ended": ended, "failure_of": failure_of},
    )


@pytest.fixture(scope="session")
def whole():
    """The outcome of the run that nothing happened to."""
    return train(until=5).outcome


@pytest.fixture(scope="session")
def honest(tmp_path_factory):
    """The directory of a run that has saved twice, and that nobody touches."""
    directory = tmp_path_factory.mktemp("honest")
    train(directory, until=2)
    return directory


@pytest.fixture
def run(honest, tmp_path):
    """A copy of it."""
    return shutil.copytree(honest, tmp_path / "run")

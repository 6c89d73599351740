"""A save that shares files with the one before fails or is killed at any of its operations."""

import errno
import os
import shutil
import signal

import pytest

from camshaft.handlers.checkpoint import checkpoints, weights
from camshaft.handlers.checkpoint.directory import files, verify_files

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.slow,
]
FROZEN = "model.frozen.safetensors"


@pytest.fixture(autouse=True)
def small_files_are_shared(monkeypatch):
    monkeypatch.setattr(files, "SMALLEST", 1)
    monkeypatch.setattr(weights, "SMALLEST", 1)


def number(saved):
    return (saved.path / FROZEN).stat().st_ino


def copied(directory, place):
    """A copy in which files are shared as they were."""
    shutil.copytree(directory, place)
    first, *rest = sorted(place.glob(f"iter*/{FROZEN}"))
    for path in rest:
        path.unlink()
        os.link(first, path)
    return place


@pytest.fixture
def runs(faults, tmp_path):
    """What an uninterrupted run gives, a run of two saves, and the operations of the third."""
    whole = faults.train(until=5, frozen=True).outcome
    honest, counted = tmp_path / "honest", tmp_path / "counted"
    faults.train(honest, until=2, frozen=True)
    copied(honest, counted)

    def task():
        names = []
        before = lambda: faults.listen(lambda name, _: names.append(name), counted)  # noqa: E731
        faults.train(counted, until=3, before=before, frozen=True)
        return names

    names, status = faults.in_child(task)
    assert (status, names.count("os.link")) == (0, 2)  # frozen weights, and what stays of objects
    assert number(checkpoints(honest)[0]) == number(checkpoints(honest)[1])
    return whole, honest, names


def check(faults, run, whole):
    """Every checkpoint is whole, and the run goes on as if nothing had been; what it began with."""
    for saved in checkpoints(run):
        verify_files(saved)
    began = faults.goes_on(run, whole, frozen=True)
    first, second = checkpoints(run)
    assert number(first) == number(second)
    return began


def test_killed_at_any_operation_it_resumes_exactly(faults, runs, tmp_path):
    whole, honest, names = runs
    began = set()
    for at in range(1, len(names) + 1):
        run = copied(honest, tmp_path / str(at))
        before = faults.at_operation(at, run, faults.kill)
        assert faults.ended(run, before, frozen=True) == -signal.SIGKILL
        began.add(check(faults, run, whole))
    assert began == {2, 3}


@pytest.mark.soak
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMLINK])
def test_an_operation_that_fails_leaves_every_checkpoint_whole(faults, runs, tmp_path, code):
    whole, honest, names = runs
    link, outcomes = names.index("os.link"), []
    for at in range(1, len(names) + 1):
        run = copied(honest, tmp_path / str(at))
        failure = faults.failure_of(run, faults.failing(at, code, run), frozen=True)
        failed = failure and failure[0]
        assert failed in (None, code), (at, names[at - 1])
        outcomes.append(failed)
        check(faults, run, whole)
    assert outcomes[link] is None  # the file is written instead
    assert code in outcomes

"""A save that is killed or fails at any of its operations: the one before is whole, nothing more.

Each operation of the third save of a run, and of the retention after it, is the last one once.
"""

import errno
import os
import resource
import shutil
import signal
import stat

import pytest
import torch

from camshaft import Engine, Events
from camshaft.handlers.checkpoint import Checkpoint, checkpoints
from camshaft.handlers.checkpoint.directory import strip_to_weights, verify_files

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
OLDER, NEW = "iteration-0000000002", "iteration-0000000003"
ERRORS = [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EACCES]


@pytest.fixture(scope="module")
def operations(faults, honest, tmp_path_factory):
    """The names of all operations of one save, in order."""
    run = shutil.copytree(honest, tmp_path_factory.mktemp("counted") / "run")
    names = []

    def task():
        faults.train(run, until=3, before=lambda: faults.listen(lambda n, _: names.append(n), run))
        return names

    found, status = faults.in_child(task)
    assert status == 0
    assert len(found) > 15
    return found


QUARTERS = range(4)
"""Every fourth operation or size, from the first, the second, the third or the fourth on."""


def every_fourth(first, operations, honest, tmp_path):
    for number, name in [*enumerate(operations, 1)][first::4]:
        yield number, name, shutil.copytree(honest, tmp_path / str(number))


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("first", QUARTERS)
def test_killed_at_any_operation_it_resumes_exactly(
    faults, honest, operations, whole, tmp_path, first
):
    began = set()
    for number, name, run in every_fourth(first, operations, honest, tmp_path):
        before = faults.at_operation(number, run, faults.kill)
        assert faults.ended(run, before) == -signal.SIGKILL
        saved = checkpoints(run).latest()
        assert saved is not None, (number, name)
        began.add(faults.goes_on(run, whole, number))
    assert began == {2, 3}


TWICE = Events.ITERATION_COMPLETED | Events.EPOCH_COMPLETED


@pytest.mark.slow
def test_killed_while_a_checkpoint_takes_the_place_of_another_it_resumes_from_one_of_them(
    faults, honest, operations, whole, tmp_path
):
    """The third iteration is the last of its epoch: it is saved, and then the epoch is."""
    found, number = set(), len(operations)  # the first of the two saves is on the disk
    while True:
        number += 1
        run = shutil.copytree(honest, tmp_path / str(number))
        before = faults.at_operation(number, run, faults.kill)
        status = faults.ended(run, before, when=TWICE)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        saved = checkpoints(run).latest()
        place = (saved.path.name, saved.manifest.epoch)
        if place in found:  # what a run goes on from is known by then
            verify_files(saved)
            continue
        found.add(place)
        assert faults.goes_on(run, whole, number, when=TWICE) == 3, number
    assert found == {(NEW, 0), (f"{NEW}.2", 0), (NEW, 1)}


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_a_failure_while_a_checkpoint_takes_the_place_of_another_leaves_one_of_them(
    faults, honest, operations, whole, tmp_path, shift
):
    epochs = set()
    for number in range(len(operations) + 1 + shift, 2 * len(operations), 4):
        run = shutil.copytree(honest, tmp_path / str(number))
        before = faults.failing(number, errno.EIO, run)
        faults.failure_of(run, before, when=TWICE)
        saved = checkpoints(run).latest()
        assert saved.manifest.iteration == 3
        epochs.add(saved.manifest.epoch)
        assert saved.path.name == NEW, number
        assert faults.goes_on(run, whole, number, when=TWICE) == 3, number
    assert epochs == {0, 1}


@pytest.mark.slow
def test_killed_while_it_is_stripped_a_checkpoint_is_whole_or_its_weights(faults, honest, tmp_path):
    kept = []
    for number in range(1, 99):
        run = shutil.copytree(honest, tmp_path / str(number))
        weight = checkpoints(run)[0].state_dict("model")["0.weight"]

        def task(run=run, before=faults.at_operation(number, run, faults.kill)):
            before()
            strip_to_weights(checkpoints(run)[0])

        _, status = faults.in_child(task)
        first = checkpoints(run)[0]
        verify_files(first)
        assert torch.equal(first.state_dict("model")["0.weight"], weight)
        kept.append(len(first.manifest.files))
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert kept[0] == 5
    assert kept[-1] == 2


def sizes(honest):
    largest = max(path.stat().st_size for path in (honest / OLDER).iterdir())
    return [0, 1, 7, 8, 100, 459, 460, 461, 1000, 5000, largest - 4096, largest - 1]


def limit(size, action):
    """Files may get no larger: the kernel kills who goes on writing, or the write fails."""

    def before():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, action)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return before


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("first", QUARTERS)
def test_killed_in_the_middle_of_a_file_it_resumes_exactly(faults, honest, whole, tmp_path, first):
    for number, size, run in every_fourth(first, sizes(honest), honest, tmp_path):
        before = limit(size, signal.SIG_DFL)
        assert faults.ended(run, before) == -signal.SIGXFSZ, size
        assert faults.goes_on(run, whole) == 2, number


def train_large(run, until=3, before=None):
    """A run whose weights, 40 MB, go past the system's cache; the number with which it began."""
    model = torch.nn.Linear(1, 5_000_000)
    began = []

    def step(state, batch):
        with torch.no_grad():
            for each in model.parameters():
                each.fill_(state.iteration)

    engine = Engine(step, objects={"model": model})
    engine.add(Checkpoint(run, when=Events.ITERATION_COMPLETED, resume=True, retries=0))
    engine.on(Events.STARTED)(
        lambda state: began.extend([state.iteration, *(e[0].item() for e in model.parameters())])
    )
    if before is not None:
        engine.on(Events.STARTED)(lambda state: before())
    engine.run(range(5), max_iterations=until)
    return began


@pytest.mark.quick(hit=1)
@pytest.mark.parametrize("hit", range(5))
def test_killed_in_a_large_file_it_resumes_from_a_whole_one(faults, tmp_path, hit):
    """At the first writes past the cache of each save, and at the operations that follow them."""
    run = tmp_path / "run"
    _, status = faults.in_child(lambda: train_large(run, until=2))
    assert status == 0
    names = []
    copy = shutil.copytree(run, tmp_path / "counted")

    def task():
        train_large(copy, before=lambda: faults.listen(lambda name, _: names.append(name), copy))
        return names

    found, _ = faults.in_child(task)
    writes = [number for number, name in enumerate(found, 1) if name == "os.write"]
    if len(writes) < 2:
        pytest.skip("this file system writes through the cache")
    before = faults.at_operation(writes[0] + hit, run, faults.kill)
    _, status = faults.in_child(lambda: train_large(run, before=before))
    assert status == -signal.SIGKILL
    verify_files(checkpoints(run).latest())
    assert faults.in_child(lambda: train_large(run)) == ([2, 2.0, 2.0], 0)
    assert faults.leftovers(run) == []


def of_the_save(operations):
    """How many operations there are until the new name is on the disk; LATEST is next."""
    renamed = operations.index("os.rename") + 1
    return renamed + 1 + operations[renamed:].index("os.fsync")


@pytest.mark.parametrize(
    "shift", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in (1, 2, 3))]
)
@pytest.mark.quick(first=1)
@pytest.mark.parametrize("first", QUARTERS)
def test_an_operation_that_fails_is_an_error_with_path_and_reason_and_leaves_no_garbage(
    faults, honest, operations, whole, tmp_path, first, shift
):
    durable = of_the_save(operations)
    for number, name, run in every_fourth(first, operations, honest, tmp_path):
        code = ERRORS[(number // 4 + shift) % len(ERRORS)]
        failed = faults.failure_of(run, faults.failing(number, code, run))
        if number <= durable:
            assert failed is not None, (number, name)
            assert failed[0] == code, (number, name)
            assert str(run / "iteration-0000000003") in failed[1]
            assert os.strerror(code) in failed[1]
            assert faults.leftovers(run) == [], (number, name)
        else:
            assert failed is None, (number, name)
        verify_files(checkpoints(run).latest())
        assert (run / OLDER).exists()
        faults.goes_on(run, whole)


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("first", QUARTERS)
def test_a_write_that_fails_in_the_middle_leaves_no_garbage(faults, honest, whole, tmp_path, first):
    for _, size, run in every_fourth(first, sizes(honest), honest, tmp_path):
        failed = faults.failure_of(run, limit(size, signal.SIG_IGN))
        assert failed is not None
        assert str(run / "iteration-0000000003") in failed[1]
        assert faults.leftovers(run) == []
        assert faults.goes_on(run, whole) == 2


def test_a_directory_that_is_read_only_is_named(faults, run, whole, tmp_path):
    mode = run.stat().st_mode
    for path in (tmp_path, *tmp_path.parents):
        if (
            path.stat().st_uid == os.getuid()
            and path.parts[-1:] != ("tmp",)
            and path != path.parent
        ):
            path.chmod(path.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)

    def before():
        if os.getuid() == 0:
            os.setuid(65534)  # nobody; root writes everywhere
        else:
            run.chmod(0o555)

    failed = faults.failure_of(run, before)
    run.chmod(mode)
    assert failed[0] == errno.EACCES
    assert str(run / "iteration-0000000003") in failed[1]
    assert faults.leftovers(run) == []
    assert faults.goes_on(run, whole) == 2

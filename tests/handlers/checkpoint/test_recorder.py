"""The recorder: what was asked for is on the disk at the end, or the run says why not."""

import json
import logging
import os
import re
import resource
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Export, latest
from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.checkpoint.directory import verify_files
from camshaft.handlers.checkpoint.directory.write import LATEST
from camshaft.handlers.checkpoint.save import recorder as writer
from camshaft.handlers.checkpoint.save.recorder import CheckpointWriter
from camshaft.handlers.files import locked

EACH = Events.ITERATION_COMPLETED


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(writer, "FIRST_WAIT", 0.001)


def counting(*handlers):
    """An engine whose model's weight is the number of the iteration, changed in place."""
    model = nn.Linear(1, 1, bias=False)

    def process(state, batch):
        with torch.no_grad():
            model.weight.fill_(float(state.iteration))

    return Engine(process, *handlers, objects={"model": model})


def weight(saved):
    return load_file(saved.path / "model.safetensors")["weight"].item()


def files(directory):
    return sorted(path.name for path in Path(directory).iterdir())


def before_each_save(monkeypatch, act):
    """Call `act(iteration)` when the system is asked for the directory of a save."""
    mkdir = os.mkdir

    def hear(path, *rest):
        if found := re.search(r"\.tmp-iteration-(\d+)", str(path)):
            act(int(found[1]))
        mkdir(path, *rest)

    monkeypatch.setattr(os, "mkdir", hear)


@pytest.fixture
def held_up(monkeypatch):
    """Holds up each save until the event is set."""
    go_on = threading.Event()
    before_each_save(monkeypatch, lambda iteration: go_on.wait(60))
    yield go_on
    go_on.set()


def test_the_file_holds_what_was_when_the_save_was_asked_for(tmp_path, held_up):
    handler = Checkpoint(tmp_path, when=EACH(at=2))
    engine = counting(handler)

    @engine.on(Events.ITERATION_STARTED(at=5))
    def look(state):
        assert checkpoints(tmp_path) == []  # the run went on meanwhile
        state.metrics["loss"] = 1.0
        held_up.set()
        handler.wait(state)
        (saved,) = checkpoints(tmp_path)
        assert (weight(saved), saved.manifest.iteration, saved.manifest.metrics) == (2.0, 2, {})

    assert engine.run(range(9), max_epochs=1).iteration == 9


def test_without_a_background_a_save_is_on_the_disk_when_the_next_iteration_begins(tmp_path):
    engine = counting(Checkpoint(tmp_path, when=EACH, background=False))
    engine.on(Events.ITERATION_STARTED(after=1))(
        lambda state: seen.append(weight(checkpoints(tmp_path)[-1]) - state.iteration)
    )
    seen = []
    engine.run(range(4), max_epochs=1)
    assert seen == [-1, -1, -1]


@pytest.mark.parametrize("background", [True, False])
def test_nothing_that_was_asked_for_is_dropped(tmp_path, background):
    handler = Checkpoint(tmp_path, when=EACH, keep=latest(99), background=background)
    counting(handler).run(range(25), max_epochs=1)
    assert [weight(each) for each in checkpoints(tmp_path)] == [float(n) for n in range(1, 26)]
    for each in checkpoints(tmp_path):
        verify_files(each)


@pytest.mark.parametrize("ends", ["well", "with an error"])
def test_when_the_run_returns_or_raises_all_is_on_the_disk_and_others_may_write(
    tmp_path, held_up, ends
):
    engine, seen = counting(Checkpoint(tmp_path, when=EACH(at=3))), []
    threading.Timer(0.1, held_up.set).start()

    @engine.on(Events.ITERATION_STARTED(at=4))
    def fail(state):
        if ends != "well":
            raise KeyError

    engine.on(Events.CLOSED)(lambda state: seen.extend(map(weight, checkpoints(tmp_path))))
    with suppress(KeyError):
        engine.run(range(4), max_epochs=1)
    assert seen == [3.0]  # those who are called at the end can read it, too
    assert files(tmp_path) == [LATEST, "iteration-0000000003"]


def failing(monkeypatch, *iterations, times=99):
    """The disk fails in the saves of these iterations, so many times each."""
    left = dict.fromkeys(iterations, times)

    def fail(iteration):
        if left.get(iteration, 0):
            left[iteration] -= 1
            raise OSError(28, "No space left on device")

    before_each_save(monkeypatch, fail)


@pytest.mark.parametrize("background", [True, False])
def test_a_disk_that_recovers_costs_nothing(tmp_path, monkeypatch, caplog, background):
    failing(monkeypatch, 2, times=2)
    handler = Checkpoint(tmp_path, when=EACH, keep=latest(9), background=background)
    counting(handler).run(range(3), max_epochs=1)
    assert [weight(each) for each in checkpoints(tmp_path)] == [1, 2, 3]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert not any("is left" in each for each in caplog.messages)  # other ranks' files may be there
    said = [re.sub(".*; trying", "trying", each) for each in caplog.messages]
    assert said == ["trying again in 0.001 s (1 of 3)", "trying again in 0.002 s (2 of 3)"]


class Failing:
    """A task that fails some times before it succeeds."""

    def __init__(self, times, error=OSError):
        self.left, self.error, self.calls = times, error, 0

    def __call__(self, *_):
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error("disk full")


def test_the_waits_are_one_two_and_four_seconds(monkeypatch, caplog):
    waits = []
    monkeypatch.setattr(writer, "FIRST_WAIT", 1.0)
    monkeypatch.setattr(writer.time, "sleep", waits.append)
    with pytest.raises(OSError, match="disk full"):
        CheckpointWriter(False, 3, "raise").several_times(Failing(9))
    assert waits == [1, 2, 4]


@pytest.mark.parametrize("on_failure", ["raise", "warn"])
def test_what_is_no_failure_of_the_disk_is_raised_and_not_tried_again(on_failure):
    beside, task, failed = CheckpointWriter(True, 3, on_failure), Failing(1, ZeroDivisionError), []
    beside.start(lambda unable: beside.several_times(task), lambda: failed.append(task.calls))
    with pytest.raises(ZeroDivisionError):
        beside.wait()
    assert (task.calls, failed) == (1, [1])
    beside.close(lambda: None)


@pytest.mark.parametrize("background", [True, False])
def test_an_error_in_releasing_the_directory_is_raised(background):
    beside = CheckpointWriter(background, 3, "raise")
    beside.start(lambda unable: None, lambda: None)
    with pytest.raises(OSError, match="disk full"):
        beside.close(Failing(1))
    beside.close(lambda: None)


def test_a_failure_ends_the_run_soon_although_no_other_save_was_asked_for(tmp_path, monkeypatch):
    failing(monkeypatch, 2)
    engine = counting(Checkpoint(tmp_path, when=EACH(at=(1, 2)), retries=1))
    state_seen = []
    engine.on(Events.FAILED)(state_seen.append)
    with pytest.raises(OSError, match="No space left on device") as caught:
        engine.run(range(1_000_000), max_epochs=1)
    assert any("in Events.SAVING, handler Checkpoint.save" in n for n in caught.value.__notes__)
    assert state_seen[0].iteration < 1_000_000
    assert files(tmp_path) == [LATEST, "iteration-0000000001"]


def test_a_failure_of_the_last_save_is_raised_too(tmp_path, monkeypatch, caplog):
    failing(monkeypatch, 3)
    engine = counting(Checkpoint(tmp_path, when=EACH(every=2, last=True), retries=0))
    with pytest.raises(OSError, match="No space left"):
        engine.run(range(3), max_epochs=1)
    assert "too late" not in caplog.text
    assert files(tmp_path) == [LATEST, "iteration-0000000002"]
    with locked(tmp_path):
        pass


def test_a_run_can_go_on_without_a_save(tmp_path, monkeypatch, caplog):
    failing(monkeypatch, 2, 5)
    handler = Checkpoint(tmp_path, when=EACH, keep=latest(9), retries=0, on_failure="warn")
    assert counting(handler).run(range(5), max_epochs=1).iteration == 5
    assert [weight(each) for each in checkpoints(tmp_path)] == [1, 3, 4]
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(errors) == 2
    assert all(each.endswith("the run goes on without it") for each in errors)


def test_two_handlers_of_one_directory_are_refused_before_anything_is_loaded(tmp_path):
    seen = []
    engine = counting(Checkpoint(tmp_path), Checkpoint(tmp_path, resume=True))
    engine.on(Events.STARTED)(seen.append)
    with pytest.raises(BlockingIOError, match="a run in this very process"):
        engine.run("ab", max_epochs=1)
    assert seen == []
    assert files(tmp_path) == []


def test_a_run_inside_a_run_cannot_write_to_the_same_directory(tmp_path):
    inner = counting(Checkpoint(tmp_path))
    outer = counting(Checkpoint(tmp_path))
    outer.on(Events.EPOCH_COMPLETED)(lambda state: inner.run("ab", max_epochs=1))
    with pytest.raises(BlockingIOError, match=f"process {os.getpid()} on "):
        outer.run("ab", max_epochs=1)


def test_what_a_killed_process_left_is_swept_as_the_run_starts(tmp_path):
    left = tmp_path / f".tmp-iteration-0000000003-{'0' * 32}"
    left.mkdir()
    engine = counting(Checkpoint(tmp_path))
    engine.on(Events.STARTED)(lambda state: seen.append(left.exists()))
    seen = []
    engine.run("a", max_epochs=1)
    assert seen == [False]


@pytest.mark.parametrize(
    ("make", "says"),
    [(Checkpoint, "copies finished checkpoints"), (Export, "Mirror copies checkpoints alone")],
)
@pytest.mark.parametrize(
    "address", ["s3://bucket/run", Path("gs://bucket/run"), "hdfs://host/run", "abfss://a@b/c"]
)
def test_an_object_store_is_refused_with_what_to_do(make, says, address):
    with pytest.raises(ValueError, match=f"rests on fsync .* {says}"):
        make(address)


@pytest.mark.parametrize("directory", ["runs/a:b", "C:/runs", "./s3", "/tmp/x"])
def test_a_directory_with_a_colon_is_one(directory):
    Checkpoint(directory)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"retries": -1}, ValueError, "retries=-1: needs a number that is not negative"),
        ({"retries": 1.5}, TypeError, r"retries=1\.5: needs a whole number"),
        ({"on_failure": "ignore"}, ValueError, "on_failure='ignore': needs 'raise' or 'warn'"),
    ],
)
@pytest.mark.parametrize("make", [Checkpoint, Export])
def test_settings_that_cannot_be_meant_are_refused(make, arguments, error, says):
    with pytest.raises(error, match=says):
        make("runs", **arguments)


LIMITED = """
import resource
import sys
import torch
from torch import nn
from camshaft import Engine, Events
from camshaft.handlers import Checkpoint
from camshaft.handlers.checkpoint.save import recorder as writer

writer.FIRST_WAIT = 0.001
model = nn.Linear(1000, 1000)
engine = Engine(lambda state, batch: model.weight.data.add_(1), objects={"model": model})
engine.add(Checkpoint(sys.argv[1], when=Events.ITERATION_COMPLETED, on_failure=sys.argv[2]))

@engine.on(Events.ITERATION_STARTED(at=2))
def fill(state):
    engine.handlers["Checkpoint"].wait(state)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))

@engine.on(Events.ITERATION_STARTED(at=4))
def empty(state):
    engine.handlers["Checkpoint"].wait(state)
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, resource.RLIM_INFINITY))

engine.run(range(5), max_epochs=1)
"""


def test_where_files_cannot_grow_the_run_ends_and_the_older_ones_are_whole(processes, tmp_path):
    ended = processes.run(LIMITED, tmp_path, "raise", code=1)
    said = r"OSError: could not write the checkpoint .*iteration-0000000002: \[Errno 27\] File too"
    assert re.search(said, ended.stderr)
    assert "bytes free there: " in ended.stderr
    assert files(tmp_path) == [LATEST, "iteration-0000000001"]
    verify_files(checkpoints(tmp_path)[0])


def test_a_failed_save_does_not_name_its_temporary_directory(tmp_path):
    deep = tmp_path  # whose files are too deep for the system as soon as their directory is hidden
    while (left := 4030 - len(str(deep))) > 1:
        deep /= "d" * min(200, left - 1)
    said = r"could not write the checkpoint .*dd/iteration-0000000001: \[Errno 36\] .* \(bytes free"
    engine = Engine(lambda state, batch: None, Checkpoint(deep, retries=0))
    with pytest.raises(OSError, match=said) as caught:
        engine.run("a", max_epochs=1)
    assert ".tmp-" not in str(caught.value)


def test_where_files_cannot_grow_for_a_while_the_run_goes_on_if_told_so(processes, tmp_path):
    processes.run(LIMITED, tmp_path, "warn")
    assert files(tmp_path) == [LATEST, "iteration-0000000004", "iteration-0000000005"]
    assert (tmp_path / LATEST).read_text() == "iteration-0000000005\n"


@pytest.fixture
def small(tmp_path):
    """A file system of 4 MB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("told", [True, False], ids=["told beforehand", "in the middle"])
def test_a_full_disk_is_named_with_the_bytes_and_the_older_ones_are_whole(small, monkeypatch, told):
    if not told:
        nothing = os.statvfs_result((0,) * 10)  # as some network file systems tell
        monkeypatch.setattr(os, "statvfs", lambda *_: nothing)
    wide = nn.Linear(1000, 700)  # 2.8 MB
    engine = Engine(lambda state, batch: wide.weight.data.add_(1), objects={"model": wide})
    engine.add(Checkpoint(small / "run", when=EACH, retries=1, keep=latest(1)))
    with pytest.raises(OSError, match=r"\[Errno 28\] No space left on device") as caught:
        engine.run(range(3), max_epochs=1)
    if told:
        assert re.search(r"2,8\d\d,\d{3} bytes are needed in .*run, and 1,", str(caught.value))
    assert f"could not write the checkpoint {small}/run/iteration-0000000002" in str(caught.value)
    assert files(small / "run") == [LATEST, "iteration-0000000001"]
    assert (small / "run" / LATEST).read_text() == "iteration-0000000001\n"
    verify_files(checkpoints(small / "run")[0])


def test_what_a_checkpoint_shares_with_the_one_before_needs_no_space(small):
    wide = nn.Linear(1000, 700)
    engine = Engine(lambda state, batch: None, objects={"model": wide})
    engine.add(Checkpoint(small / "run", when=EACH, retries=0, keep=latest(3)))
    engine.run(range(3), max_epochs=1)
    for saved in checkpoints(small / "run"):
        assert torch.equal(saved.state_dict("model")["weight"], wide.weight)


def test_a_disk_that_is_emptied_meanwhile_takes_the_save_from_the_same_memory(small, monkeypatch):
    monkeypatch.setattr(writer, "FIRST_WAIT", 0.1)
    small.joinpath("other").write_bytes(bytes(3_500_000))
    threading.Timer(0.25, small.joinpath("other").unlink).start()
    engine = counting(Checkpoint(small / "run", when=EACH(at=1), retries=5))
    engine.objects["wide"] = nn.Linear(1000, 700)
    engine.run(range(3), max_epochs=1)
    (saved,) = checkpoints(small / "run")
    assert weight(saved) == 1.0
    verify_files(saved)


def test_the_memory_of_a_copy_is_taken_once(tmp_path):
    rose = []
    wide = nn.Linear(2000, 2000)
    engine = Engine(lambda state, batch: None, objects={"model": wide})
    engine.add(Checkpoint(tmp_path, when=EACH))
    engine.on(EACH)(lambda state: rose.append(resource.getrusage(0).ru_maxrss))
    engine.run(range(6), max_epochs=1)
    assert rose[-1] - rose[2] < 4_000


RANKS = """
import json
import os
import resource
import sys
import ignite.distributed as idist
from torch import nn
from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Export

directory, kind, end = *sys.argv[1:3], int(sys.argv[3])
idist.initialize("gloo")
rank = idist.get_rank()
make = {"checkpoint": Checkpoint, "export": Export}[kind]
handler = make(directory, when=Events.ITERATION_COMPLETED(at=(1, 2, 4)), retries=0)
engine = Engine(lambda state, batch: None, handler, objects={"model": nn.Linear(1000, 100)})

@engine.on(Events.ITERATION_STARTED(at=2))
def fill(state):
    handler.wait(state)
    if rank == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))

said, reached = None, []
engine.on(Events.ITERATION_COMPLETED)(lambda state: reached.append(state.iteration))
try:
    engine.run(range(end), max_epochs=1)
except Exception as error:
    said = f"{type(error).__name__}: {error}"
print(json.dumps([reached[-1], said]), flush=True)
idist.barrier()
os._exit(0)  # gloo's threads sometimes abort a process that ends in the usual way
"""


@pytest.mark.quick(kind=1)
@pytest.mark.parametrize("kind", ["checkpoint", "export"])
@pytest.mark.parametrize(("end", "task"), [(6, ""), (3, "write its last checkpoint")])
def test_of_several_ranks_all_are_told_at_the_next_save_or_at_the_end(
    processes, tmp_path, end, task, kind
):
    directory = tmp_path / "run"
    results = processes.run_ranks(2, RANKS, directory, kind, end)
    said = [json.loads(each.stdout) for each in results]
    assert [reached for reached, _ in said] == [min(end, 4)] * 2
    assert said[0][1].startswith("OSError: could not write the checkpoint")
    assert said[1][1].startswith("AnotherRankError: another rank could not")
    assert task in said[1][1]
    assert files(directory) == [LATEST, "iteration-0000000001"]


def test_a_script_that_changes_its_working_directory_goes_on_writing_where_it_began(
    tmp_path, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    counting(Checkpoint("run", when=EACH, keep=latest(9))).run("abc", max_epochs=1)
    named = f"run/{checkpoints('run')[0].path.name}"
    engine = counting(Checkpoint("run", when=EACH, keep=latest(1), resume=named))
    engine.on(Events.STARTED)(lambda state: os.chdir("elsewhere"))
    engine.run("abc", max_epochs=2)
    assert files("../run") == [LATEST, "iteration-0000000001", "iteration-0000000006"]
    assert files(".") == []


@pytest.mark.parametrize("name", [3, None, (1, 2)])
def test_a_metric_whose_name_is_no_text_breaks_no_checkpoint(tmp_path, name):
    engine = counting(Checkpoint(tmp_path))
    engine.on(EACH)(lambda state: state.metrics.update({name: 0.5, "loss": 0.25}))
    engine.run("a", max_epochs=1)
    assert checkpoints(tmp_path).latest().manifest.metrics == {"loss": 0.25}
    resumed = counting(Checkpoint(tmp_path, resume=True)).run("a", max_epochs=2)
    assert resumed.metrics[name] == 0.5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_does_not_wait_for_the_thread_it_has_not_got():
    beside, go_on = CheckpointWriter(True, 0, "raise"), threading.Event()
    beside.start(lambda unable: go_on.wait(60), lambda: None)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        beside.close(lambda: None)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    go_on.set()
    beside.close(lambda: None)
    assert os.waitstatus_to_exitcode(status) == 7

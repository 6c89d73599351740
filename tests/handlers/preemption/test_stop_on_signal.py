"""Stops by signals: in this process where it survives, in others where it does not."""

import math
import os
import signal
import threading
import time
from itertools import pairwise
from signal import SIGINT, SIGTERM, SIGUSR1

import pytest
import torch
from torch import nn

from camshaft import Engine, Events, Stage, State, supervised
from camshaft.engine.state import End
from camshaft.handlers import Checkpoint, EarlyStopping, JSONLines, StopOnSignal, Validate
from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.preemption.stop_on_signal import Questions

INPUTS = torch.arange(24.0).reshape(12, 2) / 24
DATA = [(INPUTS[i : i + 2], INPUTS[i : i + 2, :1]) for i in range(0, 12, 2)]


def kill(*_):
    """Raise SIGTERM here and now, as a handler of any event."""
    signal.raise_signal(SIGTERM)


def training(directory, *handlers, accumulate=1):
    """A run of 3 epochs of 6 iterations that is validated and saved after each epoch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    engine = supervised(model, optimizer, nn.functional.mse_loss, accumulate=accumulate)
    engine.add(Validate(DATA[:2]), Checkpoint(directory / "run", resume=True))
    engine.add(JSONLines(directory / "rows", when=Events.ITERATION_COMPLETED(every=2)))
    return engine.add(*handlers)


def exits(engine, data=DATA, epochs=3, code=143):
    """Run until the engine ends the process."""
    with pytest.raises(SystemExit) as caught:
        engine.run(data, max_epochs=epochs)
    assert caught.value.code == code


def outcome(engine, state):
    weights = [each.tolist() for each in engine.objects["model"].parameters()]
    return weights, state.iteration, state.step, state.epoch, dict(state.metrics)


def check(directory, kill_at, stopped_at, accumulate=1):
    """Kill a run, see it saved once where it should be, and compare it with one nobody killed."""
    runs = {name: directory / name for name in ("whole", "parts")}
    engine = training(runs["whole"], accumulate=accumulate)
    whole = outcome(engine, engine.run(DATA, max_epochs=3))

    first = training(runs["parts"], StopOnSignal(), accumulate=accumulate)
    kill_at(first)
    exits(first)
    saved = [each.manifest for each in checkpoints(runs["parts"] / "run")]
    assert [each.iteration for each in saved].count(stopped_at) == 1
    assert saved[-1].iteration == stopped_at
    assert "SIGTERM" in saved[-1].reason

    second = training(runs["parts"], StopOnSignal(), accumulate=accumulate)
    torch.manual_seed(99)
    assert repr(outcome(second, second.run(DATA, max_epochs=3))) == repr(whole)
    assert (runs["parts"] / "rows").read_text() == (runs["whole"] / "rows").read_text()


@pytest.mark.quick(when=7)
@pytest.mark.parametrize(
    ("when", "stopped_at"),
    [
        (Events.STARTED, 0),
        (Events.EPOCH_STARTED(at=1), 0),
        (Events.EPOCH_STARTED(at=2), 6),
        (Events.ITERATION_STARTED(at=8), 8),
        (Events.GRADIENTS_READY(at=9), 9),
        (Events.STEP_COMPLETED(at=6), 6),
        (Events.ITERATION_COMPLETED(at=10), 10),
        (Events.ITERATION_COMPLETED(at=18), 18),
        (Events.EPOCH_COMPLETED(at=2), 12),
        (Events.EPOCH_COMPLETED(at=3), 18),
    ],
    ids=repr,
)
def test_a_run_is_saved_once_where_a_signal_met_it_and_goes_on_as_if_there_was_none(
    tmp_path, when, stopped_at
):
    check(tmp_path, lambda engine: engine.on(when)(kill), stopped_at)


def test_a_signal_in_an_evaluation_leaves_it_to_the_resumed_run(tmp_path):
    def in_the_second(engine):
        @engine.evaluation.on(Events.ITERATION_COMPLETED(at=1))
        def kill_in_the_second(state):
            if state.parent.epoch == 2:
                kill()

    check(tmp_path, in_the_second, 12)


@pytest.mark.parametrize("stage", [Stage.MEASURE, Stage.REPORT])
def test_a_signal_within_a_save_leaves_one_checkpoint_of_that_place(tmp_path, stage):
    engine = training(tmp_path, StopOnSignal())
    engine.on(Events.SAVING(once=True), stage=stage)(kill)
    exits(engine)
    saved = [each.manifest for each in checkpoints(tmp_path / "run")]
    assert [each.iteration for each in saved] == [6]
    assert "SIGTERM" in saved[0].reason


def test_a_signal_while_a_batch_is_fetched_lets_that_batch_be_the_last(tmp_path):
    def fetching():
        for number, batch in enumerate(DATA):
            if number == 3:
                kill()
            yield batch

    engine = training(tmp_path, StopOnSignal())
    exits(engine, fetching(), 1)
    assert [each.manifest.iteration for each in checkpoints(tmp_path / "run")] == [4]


@pytest.mark.parametrize(("killed_at", "stopped_at"), [(7, 9), (8, 9), (9, 9), (10, 12)])
def test_an_open_accumulation_window_is_closed_first(tmp_path, killed_at, stopped_at):
    when = Events.ITERATION_STARTED(at=killed_at)
    check(tmp_path, lambda engine: engine.on(when)(kill), stopped_at, accumulate=3)


def test_an_interrupted_run_is_not_validated_at_the_place_where_it_happens_to_be(tmp_path):
    engine, seen = training(tmp_path, StopOnSignal()), []
    engine.on(Events.ITERATION_COMPLETED(at=6))(kill)
    engine.on(Events.EPOCH_COMPLETED | Events.COMPLETED)(seen.append)
    engine.evaluation.on(Events.STARTED)(seen.append)
    exits(engine)
    assert seen == []


def test_a_signal_does_not_hide_that_the_run_is_stopped_for_good(tmp_path):
    def process(state, batch):
        state.metrics["score"] = 1.0

    def scoring():
        return Engine(
            process, EarlyStopping("score", patience=1), Checkpoint(tmp_path, resume=True)
        )

    engine = scoring().add(StopOnSignal(exit=False))
    engine.on(Events.EPOCH_COMPLETED(at=2), stage=Stage.MEASURE)(kill)
    state = engine.run("ab", max_epochs=9)
    assert state.stop_reason.startswith("early stopping")
    assert scoring().run("ab", max_epochs=9).epoch == 2


@pytest.mark.parametrize("when", [Events.COMPLETED, Events.CLOSED])
def test_a_signal_when_all_is_done_still_decides_the_exit_code(tmp_path, when, caplog):
    engine = training(tmp_path, StopOnSignal())
    engine.on(when, stage=Stage.MEASURE)(kill)
    exits(engine, DATA, 1)
    assert "too late" not in caplog.text
    again = training(tmp_path, StopOnSignal()).run(DATA, max_epochs=1)
    assert (again.iteration, again.stop_reason) == (6, "max_epochs")


@pytest.mark.parametrize(("number", "code"), [(SIGTERM, 143), (SIGINT, 130), (SIGUSR1, 138)])
def test_the_exit_code_tells_the_signal(number, code):
    engine = Engine(lambda state, batch: signal.raise_signal(number), StopOnSignal())
    exits(engine, "abc", 1, code)


@pytest.mark.parametrize("code", [0, 99, 255])
def test_one_may_choose_the_exit_code_also_of_a_run_that_is_over(code, tmp_path):
    for when in (Events.ITERATION_COMPLETED(at=2), Events.CLOSED):
        engine = Engine(lambda state, batch: None, StopOnSignal(exit_code=code))
        engine.on(when, stage=Stage.MEASURE)(kill)
        exits(engine, "abc", 1, code)


def test_the_wait_comes_when_all_is_saved_and_everybody_had_a_turn(tmp_path):
    engine, ended = training(tmp_path, StopOnSignal(wait=0.3)), []
    engine.on(Events.ITERATION_COMPLETED(at=2))(kill)

    @engine.on(Events.CLOSED, stage=Stage.REPORT)
    def look(state):
        saved = [each.manifest.iteration for each in checkpoints(tmp_path / "run")]
        ended.append((time.monotonic(), saved, signal.getsignal(SIGTERM)))

    exits(engine)
    [(at, saved, handler)] = ended
    assert time.monotonic() - at >= 0.3
    assert (saved, handler) == ([2], signal.SIG_DFL)


def test_a_deadline_ends_the_wait_with_the_same_exit_code():
    began = time.monotonic()
    exits(Engine(kill, StopOnSignal(wait=600, deadline=0.2)), "abc", 1)
    assert 0.2 <= time.monotonic() - began < 60


def test_a_run_without_a_signal_or_one_that_fails_does_not_wait():
    def fail(state, *_):
        raise ZeroDivisionError

    def failing(process, when):
        engine = Engine(process, StopOnSignal(wait=math.inf))
        engine.on(when)(fail)
        return engine

    began = time.monotonic()
    Engine(lambda state, batch: None, StopOnSignal(wait=math.inf)).run("abc", max_epochs=1)
    for when in (Events.ITERATION_COMPLETED, Events.CLOSED):
        with pytest.raises(ZeroDivisionError):
            failing(kill, when).run("abc", max_epochs=1)
    assert time.monotonic() - began < 60
    exits(Engine(kill, StopOnSignal(wait=0.0)), "abc", 1)  # after one that failed on this thread


def test_of_runs_inside_one_another_the_outermost_waits():
    def process(state, batch):
        if state.parent is None:
            state.engine.run("xyz", max_epochs=1, parent=state)
            inner.append(time.monotonic())
        else:
            kill()

    inner, began = [], time.monotonic()
    exits(Engine(process, StopOnSignal(wait=0.3)), "abc", 1)
    assert inner[0] - began < 0.3 <= time.monotonic() - inner[0]


def test_one_may_have_run_return_instead_and_without_a_checkpoint_it_only_stops(caplog):
    state = Engine(kill, StopOnSignal(exit=False)).run("abc", max_epochs=1)
    assert (state.iteration, state.stop_reason, state.end) == (1, "SIGTERM", End.PAUSED)
    assert caplog.text == ""
    assert Engine(lambda state, batch: None).run("abc", state=state).iteration == 3


def test_a_run_that_fails_after_the_signal_raises_its_own_error():
    def process(state, batch):
        kill()
        raise ZeroDivisionError("of its own")

    with pytest.raises(ZeroDivisionError, match="of its own") as caught:
        Engine(process, StopOnSignal()).run("abc", max_epochs=1)
    assert "SystemExit" not in str(caught.value.__notes__)
    assert signal.getsignal(SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("stage", Stage)
def test_what_fails_when_the_run_is_closed_is_not_hidden_by_the_exit(stage):
    engine = Engine(kill)
    if stage is Stage.REPORT:
        engine.add(StopOnSignal())
    engine.on(Events.CLOSED, stage=stage)(lambda state: 1 / 0)
    if stage is not Stage.REPORT:
        engine.add(StopOnSignal())
    with pytest.raises(ZeroDivisionError):
        engine.run("abc", max_epochs=1)


def test_handlers_from_before_are_called_and_put_back():
    called = []

    def before(number, frame):
        called.append(number)

    replaced = signal.signal(SIGTERM, before)
    try:
        state = Engine(kill, StopOnSignal(exit=False)).run("abc", max_epochs=1)
        assert (state.iteration, called) == (1, [SIGTERM])
        assert signal.getsignal(SIGTERM) is before
    finally:
        signal.signal(SIGTERM, replaced)
    assert signal.getsignal(SIGINT) is signal.default_int_handler
    assert signal.getsignal(SIGUSR1) is signal.SIG_DFL


def test_ctrl_c_does_not_raise_the_first_time_and_does_the_second_time():
    engine = Engine(lambda state, batch: signal.raise_signal(SIGINT), StopOnSignal(exit=False))
    assert engine.run("abc", max_epochs=1).stop_reason == "SIGINT"
    seen = []

    def twice(state, batch):
        signal.raise_signal(SIGINT)
        seen.append(state.iteration)
        signal.raise_signal(SIGINT)
        seen.append("not reached")

    with pytest.raises(KeyboardInterrupt):
        Engine(twice, StopOnSignal()).run("abc", max_epochs=1)
    assert seen == [1]
    assert signal.getsignal(SIGINT) is signal.default_int_handler


def test_only_the_named_signals_are_handled():
    def process(state, batch):
        assert signal.getsignal(SIGINT) is signal.default_int_handler
        signal.raise_signal(SIGUSR1)

    state = Engine(process, StopOnSignal(SIGUSR1, exit=False)).run("abc", max_epochs=1)
    assert state.stop_reason == "SIGUSR1"


def test_a_run_inside_a_run_stops_and_so_does_the_one_around_it():
    def process(state, batch):
        if state.parent is not None:
            kill()
        else:
            inner = state.engine.run("xyz", max_epochs=1, parent=state)
            assert inner.iteration == 1

    engine, failed = Engine(process, StopOnSignal()), []
    engine.on(Events.FAILED)(failed.append)
    exits(engine, "abc", 1)
    assert failed == []
    assert signal.getsignal(SIGTERM) is signal.SIG_DFL


def test_a_run_in_a_thread_says_that_it_cannot_handle_signals():
    raised = []

    def run():
        try:
            Engine(kill, StopOnSignal()).run("abc", max_epochs=1)
        except RuntimeError as error:
            raised.append(str(error))

    thread = threading.Thread(target=run, name="trainer")
    thread.start()
    thread.join()
    assert "only the main thread" in raised[0]
    assert "'trainer'" in raised[0]


def test_alone_it_costs_an_iteration_nothing():
    engine = Engine(lambda state, batch: None, StopOnSignal())

    @engine.on(Events.STARTED, stage=Stage.REPORT)
    def look(state):
        assert signal.getsignal(SIGTERM) is not signal.SIG_DFL
        for event in (Events.ITERATION_STARTED, Events.ITERATION_COMPLETED):
            assert not engine.signal(event).receivers

    assert engine.run("abc", max_epochs=1).iteration == 3


def test_nonsense_is_refused():
    with pytest.raises(TypeError, match=r"got 'SIGTERM' for a signal; it needs signals such as"):
        StopOnSignal("SIGTERM")
    with pytest.raises(TypeError, match=r"got 30 for a signal; .* StopOnSignal\(deadline=30\)"):
        StopOnSignal(30)
    with pytest.raises(ValueError, match=r"deadline=0\): needs seconds greater than 0"):
        StopOnSignal(deadline=0)
    for wait in (-1, math.nan, None, True, "60"):
        with pytest.raises(ValueError, match=r"wait=.*: needs seconds, from 0"):
            StopOnSignal(wait=wait)
    for code in (-1, 256, True, 1.0, "99"):
        with pytest.raises(ValueError, match=r"exit_code=.*: needs a number from 0 to 255"):
            StopOnSignal(exit_code=code)
    for given in ({"wait": 60}, {"exit_code": 0}):
        with pytest.raises(ValueError, match="never exits; leave wait and exit_code out"):
            StopOnSignal(exit=False, **given)


def test_a_deadline_that_is_kept_leaves_nothing_behind():
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        engine = Engine(kill, StopOnSignal(deadline=60, exit=False))
        assert engine.run("abc", max_epochs=1).stop_reason == "SIGTERM"
    assert signal.set_wakeup_fd(-1) == -1
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, files)


SCRIPT = """
import multiprocessing, os, signal, sys, time
from camshaft import Engine
from camshaft.handlers import StopOnSignal

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
fork = multiprocessing.get_context("fork")

def helper(connection):
    print("child", flush=True)
    connection.send("ready")
    time.sleep(600)

def forked():
    here, there = fork.Pipe()
    child = fork.Process(target=helper, args=(there,), daemon=True)
    child.start()
    here.recv()
    print(child.pid, flush=True)
    return child

def busy(state, batch):
    forked()
    print("stuck", flush=True)
    while True:
        pass

def never_back(state, batch):
    forked()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # so the sleep is not interrupted
    print("stuck", flush=True)
    time.sleep(600)

def ends_its_child(state, batch):
    child = forked()
    child.terminate()
    child.join()
    time.sleep(0.2)
    print(child.exitcode, state.stop_reason, flush=True)

engine = Engine(globals()[sys.argv[1]], StopOnSignal(deadline=float(sys.argv[2])))
engine.run("ab", max_epochs=1)
print("done")
"""


def stuck(child):
    """Wait until it is; return its own child's id."""
    assert child.stdout.readline() == "child\n"
    number = int(child.stdout.readline())
    assert child.stdout.readline() == "stuck\n"
    return number


def test_a_second_signal_ends_the_process_at_once_and_its_children_with_it(processes):
    with processes.start(SCRIPT, "busy", 600) as child:
        stuck(child)
        child.send_signal(SIGTERM)
        child.send_signal(SIGUSR1)
        out, _ = child.communicate()  # the pipe is closed when the child's child is gone too
    assert child.returncode in (-SIGTERM, -SIGUSR1)
    assert out == ""


@pytest.mark.parametrize("process", ["busy", "never_back"])
def test_a_deadline_ends_the_process_and_its_children_whatever_it_is_doing(processes, process):
    with processes.start(SCRIPT, process, 0.5) as child:
        stuck(child)
        child.send_signal(SIGTERM)
        out, err = child.communicate()
    assert child.returncode == 143
    assert out == ""
    assert "0.5 s after the signal, the process is ended" in err


CLOSED = """
import os, signal, sys
os.close(2)
sys.stderr = sys.__stderr__ = None  # as Python begins where it is closed
file = open(sys.argv[1], "w")
assert file.fileno() == 2
from camshaft import Engine
from camshaft.handlers import StopOnSignal
engine = Engine(lambda state, batch: signal.raise_signal(signal.SIGTERM), StopOnSignal())
engine.run("ab", max_epochs=1)
"""


def test_where_standard_error_is_closed_the_file_of_its_number_gets_no_line(processes, tmp_path):
    processes.run(CLOSED, tmp_path / "file", code=143)
    assert (tmp_path / "file").read_text() == ""


WAITING = """
import logging, math, signal, sys
from torch import nn
from camshaft import Engine
from camshaft.handlers import Checkpoint, StopOnSignal

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
logging.basicConfig(level="INFO", stream=sys.stdout)

def step(state, batch):
    signal.raise_signal(signal.SIGTERM)

engine = Engine(step, StopOnSignal(wait=math.inf), objects={"model": nn.Linear(9, 9)})
engine.add(Checkpoint(sys.argv[1])).run("abc", max_epochs=1)
"""


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
def test_a_second_signal_ends_the_wait_at_once_and_the_checkpoint_is_there(
    processes, tmp_path, number
):
    with processes.start(WAITING, tmp_path) as child:
        while "seconds before the exit" not in child.stdout.readline():
            pass
        child.send_signal(number)
        _, err = child.communicate()
    assert child.returncode == -number, err
    assert ("KeyboardInterrupt" in err) == (number == SIGINT)
    assert checkpoints(tmp_path).latest().manifest.iteration == 1


def test_a_process_forked_by_the_run_is_as_if_there_was_no_handler(processes):
    out = processes.run(SCRIPT, "ends_its_child", 0.1).stdout
    assert [line for line in out.splitlines() if line.startswith("-")] == ["-15 None"] * 2
    assert out.endswith("done\n")


LAST_SAVE = """
import os, sys, time
from torch import nn
from camshaft import Engine, Events, Stage
from camshaft.handlers import Checkpoint, StopOnSignal

directory, phase = sys.argv[1:]
fsync, disk = os.fsync, {"delay": 0.0}

def slow(descriptor):
    time.sleep(disk["delay"])
    fsync(descriptor)

def hit(state):
    print("now", flush=True)
    time.sleep(0.0 if phase == "writing" else 0.1)

os.fsync = slow
engine = Engine(lambda state, batch: None, StopOnSignal(), objects={"model": nn.Linear(9, 9)})
engine.add(Checkpoint(directory))
engine.on(Events.EPOCH_COMPLETED(at=2))(lambda state: disk.update(delay=0.05))
when = {"saving": Events.SAVING(at=2), "closed": Events.CLOSED}.get(phase, Events.COMPLETED)
engine.on(when, stage=Stage.REPORT if phase == "saving" else Stage.MEASURE)(hit)
engine.run(range(3), max_epochs=2)
"""


@pytest.mark.quick(phase=1)
@pytest.mark.parametrize("phase", ["closed", "saving", "completed", "writing"])
def test_a_signal_in_the_last_save_or_after_it_waits_until_it_is_on_the_disk(
    processes, tmp_path, phase
):
    with processes.start(LAST_SAVE, tmp_path, phase) as process:
        assert process.stdout.readline() == "now\n"
        process.send_signal(SIGTERM)
        assert process.result().returncode == 143
    saved = checkpoints(tmp_path).latest()
    assert (saved.path.name, saved.manifest.epoch) == ("iteration-0000000006", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "LATEST",
        "iteration-0000000003",
        "iteration-0000000006",
    ]


def test_ranks_ask_one_another_about_once_a_second_whatever_the_pace(monkeypatch):
    now, asked, state = 0.0, [], State()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    questions = Questions(state, None)
    for seconds, until in ((0.001, 10_000), (0.5, 12_000)):
        while state.iteration < until:
            state.iteration, now = state.iteration + 1, now + seconds
            if state.iteration >= questions.due:
                asked.append(now)
                assert questions.ask(state, None) is None
    quick = [each for each in asked if each <= 10]
    assert len(quick) < 20  # doubling from 1, then one a second
    assert max(b - a for a, b in pairwise(quick)) < 1.1
    slow = asked[len(quick) + 1 :]  # after the one that was planned at the old pace
    assert {round(b - a, 6) for a, b in pairwise(slow)} == {1.0}
    assert questions.ask(state, SIGTERM) == SIGTERM

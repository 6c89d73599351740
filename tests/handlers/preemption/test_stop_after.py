"""Stops by the clock, and the deadline of a stop."""

import math
import signal
import socket
import time

import pytest

from camshaft import Engine, Events
from camshaft.engine.state import End
from camshaft.handlers import Checkpoint, StopAfter
from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.preemption.watchdog import Watchdog


class Clock:
    """A clock that a process function turns, as the time that its iterations take."""

    def __init__(self):
        self.now, self.looks = 1000.0, 0

    def __call__(self):
        self.looks += 1
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def engine(clock, *handlers, takes=10.0):
    def process(state, batch):
        clock.now += takes

    return Engine(process, *handlers)


def test_a_run_is_over_when_the_time_is(clock):
    state = engine(clock, StopAfter(seconds=35)).run(range(9), max_epochs=3)
    assert (state.iteration, state.stop_reason) == (4, "35 seconds are over")
    assert state.end is End.PAUSED


def test_one_that_is_faster_never_notices(clock):
    state = engine(clock, StopAfter(seconds=9001)).run(range(9), max_epochs=100)
    assert (state.iteration, state.stop_reason) == (900, "max_epochs")


def test_there_may_be_no_limit(clock):
    trainer = engine(clock, StopAfter(seconds=math.inf))
    assert trainer.run(range(9), max_epochs=1).iteration == 9
    assert not trainer.signal(Events.ITERATION_COMPLETED).receivers


def test_the_run_is_saved_once_and_goes_on_when_started_again_with_all_of_its_time(clock, tmp_path):
    def run():
        handlers = Checkpoint(tmp_path, resume=True), StopAfter(seconds=35)
        return engine(clock, *handlers).run(range(9), max_epochs=1)

    assert run().iteration == 4
    assert [each.manifest.iteration for each in checkpoints(tmp_path)] == [4]
    assert checkpoints(tmp_path)[0].manifest.reason == "35 seconds are over"
    assert run().iteration == 8
    assert (state := run()).iteration == 9
    assert state.stop_reason == "max_epochs"


def test_a_state_that_is_carried_on_has_all_of_its_time_again(clock):
    trainer = engine(clock, StopAfter(seconds=35))
    state = trainer.run(range(9), max_epochs=1)
    assert trainer.run(range(9), state=state).iteration == 8


def test_time_before_the_first_batch_counts_from_the_call_of_run(clock):
    trainer = engine(clock, StopAfter(seconds=35))

    @trainer.on(Events.LOADING)
    def load(state):
        clock.now += 15

    assert trainer.run(range(9), max_epochs=1).iteration == 2


def test_an_open_window_is_closed_first(clock, tmp_path):
    trainer = engine(clock, StopAfter(seconds=35), Checkpoint(tmp_path))
    trainer.on(Events.ITERATION_STARTED(at=3))(
        lambda state: state.step_under_way.windows.update({0: None})
    )
    trainer.on(Events.ITERATION_COMPLETED(at=6))(lambda state: state.step_under_way.windows.clear())
    assert trainer.run(range(9), max_epochs=1).iteration == 6
    assert [each.manifest.iteration for each in checkpoints(tmp_path)] == [6]
    assert checkpoints(tmp_path)[0].manifest.reason == "35 seconds are over"


def test_without_a_checkpoint_it_only_stops(clock, caplog):
    assert engine(clock, StopAfter(seconds=5)).run(range(9), max_epochs=1).iteration == 1
    assert caplog.text == ""


def test_the_clock_is_looked_at_a_few_times_in_a_run(clock):
    trainer = engine(clock, StopAfter(seconds=10_000), takes=1.0)
    state = trainer.run(range(100), max_iterations=20_000)
    assert state.iteration == 10_000
    assert clock.looks < 40


@pytest.mark.parametrize("seconds", [0, -1.5, float("nan")])
def test_no_time_at_all_is_refused(seconds):
    with pytest.raises(ValueError, match="needs a time greater than 0"):
        StopAfter(seconds=seconds)


def test_who_listened_before_hears_every_signal_and_is_put_back():
    source, sink = socket.socketpair()
    source.settimeout(60)
    sink.setblocking(False)
    replaced = signal.signal(signal.SIGUSR2, lambda number, frame: None)
    before = signal.set_wakeup_fd(sink.fileno())
    try:
        watchdog = Watchdog((signal.SIGTERM,), 60)
        signal.raise_signal(signal.SIGUSR2)
        assert source.recv(1)[0] == signal.SIGUSR2
        watchdog.close()
        assert signal.set_wakeup_fd(before) == sink.fileno()
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGUSR2, replaced)
        source.close()
        sink.close()

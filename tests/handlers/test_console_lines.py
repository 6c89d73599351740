"""Progress as lines of text."""

import logging

import pytest
import torch

from camshaft import Engine, Events, Stage, State, supervised
from camshaft.handlers import ConsoleLines
from camshaft.handlers.console_lines import Pace, remaining

EACH = Events.ITERATION_COMPLETED


class Clock:
    """A clock that a test moves."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr("camshaft.handlers.console_lines.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def run(clock, seconds, *, count=10, when=EACH(every=2), metrics=(), state=None, **arguments):
    """The lines of a run whose iterations take so many seconds each."""
    lines = []

    def train_step(state, batch):
        clock.now += seconds(state.iteration)
        state.metrics["loss"] = torch.tensor(1 / state.iteration)

    handler = ConsoleLines(*metrics, when=when, write=lines.append, **arguments)
    engine = Engine(train_step, handler)
    end = engine.run(range(count), max_epochs=1, state=state)
    return lines, end


def test_a_line_says_how_far_and_how_fast_the_run_is_and_when_it_ends(clock):
    lines, _ = run(clock, lambda iteration: 0.5)
    assert lines == [
        "iteration 2/10  epoch 1/1  loss 0.5",
        "iteration 4/10  epoch 1/1  2.0 it/s  eta 0:00:03  loss 0.25",
        "iteration 6/10  epoch 1/1  2.0 it/s  eta 0:00:02  loss 0.1667",
        "iteration 8/10  epoch 1/1  2.0 it/s  eta 0:00:01  loss 0.125",
        "iteration 10/10  epoch 1/1  2.0 it/s  eta 0:00:00  loss 0.1",
    ]


def test_what_comes_before_the_first_line_is_warm_up(clock):
    lines, _ = run(clock, lambda iteration: 1000 if iteration < 3 else 10)
    assert "0.1 it/s" not in lines[0]
    assert "10.0 s/it  eta 0:01:00" in lines[1]


def test_the_rate_is_of_now_and_the_time_left_of_the_whole(clock):
    lines, _ = run(clock, lambda iteration: 1 if iteration <= 4 else 3)
    assert "1.0 it/s  eta 0:00:06" in lines[1]
    assert "3.0 s/it  eta 0:00:08" in lines[2]  # 8 seconds for 4 iterations, and 4 are left


def test_a_resumed_run_goes_by_its_own_time(clock):
    saved = State()
    first, state = run(clock, lambda iteration: 100, count=10)
    saved.load_state_dict(state.state_dict())
    clock.now += 1e6
    lines = []

    def train_step(state, batch):
        clock.now += 1

    engine = Engine(train_step, ConsoleLines(when=EACH(every=2), write=lines.append))
    engine.on(Events.LOADING)(lambda state: state.load_state_dict(saved.state_dict()))
    engine.run(range(10), max_epochs=2)
    assert len(first) == 5
    assert lines[0] == "iteration 12/20  epoch 2/2"
    assert lines[1] == "iteration 14/20  epoch 2/2  1.0 it/s  eta 0:00:06"


def test_metrics_are_chosen_by_name_and_have_units(clock):
    lines, _ = run(
        *(clock, lambda iteration: 1),
        count=2,
        metrics=["missing", "loss"],
        units={"loss": "nats", "other": "s"},
    )
    assert lines == ["iteration 2/2  epoch 1/1  loss 0.5 nats"]


def test_only_what_is_new_is_shown():
    lines = []

    def train_step(state, batch):
        if batch == 1:
            state.metrics["rare"] = 1.0

    Engine(train_step, ConsoleLines(when=EACH, write=lines.append)).run([1, 2], max_epochs=1)
    assert ["rare" in line for line in lines] == [True, False]


def test_lines_may_go_to_a_log(caplog):
    caplog.set_level(logging.INFO)
    write = logging.getLogger("train").info
    Engine(lambda state, batch: None, ConsoleLines(when=EACH, write=write)).run([1], max_epochs=1)
    assert caplog.messages == ["iteration 1/1  epoch 1/1"]


def test_lines_that_nobody_reads_cost_one_warning(caplog):
    def write(line):
        raise BrokenPipeError("nobody reads")

    engine = Engine(lambda state, batch: None, ConsoleLines(when=EACH, write=write))
    assert engine.run([1, 2, 3], max_epochs=1).iteration == 3
    [warning] = caplog.messages
    assert "ConsoleLines lost a line: BrokenPipeError: nobody reads" in warning


def test_by_default_they_are_printed(capsys):
    Engine(lambda state, batch: None, ConsoleLines()).run([1], max_epochs=1)
    assert capsys.readouterr().out == "iteration 1/1  epoch 1/1\n"


def test_a_limit_in_steps_is_shown_and_counts(clock):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, lines = supervised(model, optimizer, torch.nn.functional.mse_loss, accumulate=2), []
    engine.add(ConsoleLines("none", when=EACH(every=4), write=lines.append))
    engine.on(EACH)(lambda state: setattr(clock, "now", clock.now + 1))
    engine.run([(torch.ones(3, 2), torch.zeros(3, 1))] * 8, max_steps=10)
    assert lines[1] == "iteration 8  epoch 1  step 4/10  1.0 it/s  eta 0:00:12"


def test_without_a_known_end_there_is_no_time_left():
    state = State(iteration=5)
    assert remaining(state, 5, 0) is None
    assert Pace().parts(state, 0.0) == []


def test_what_is_no_name_is_refused():
    with pytest.raises(TypeError, match="needs names"):
        ConsoleLines(EACH)


def test_a_line_at_the_start_knows_the_length_and_what_was_measured_there():
    lines = []
    start = Events.STARTED
    engine = Engine(lambda state, batch: None)
    engine.on(start, stage=Stage.MEASURE)(lambda state: state.metrics.update({"val/loss": 0.5}))
    engine.add(ConsoleLines("val/loss", when=start, write=lines.append))
    engine.run(range(10), max_epochs=3)
    assert lines == ["iteration 0/30  epoch 0/3  val/loss 0.5"]

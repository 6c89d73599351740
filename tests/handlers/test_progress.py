"""Progress, on a terminal or as plain lines of text."""

import fcntl
import io
import logging
import os
import re
import struct
import termios
import time
from contextlib import suppress
from typing import Any

import pytest
import torch

from camshaft import Engine, Events, Stage, State, supervised
from camshaft.handlers import Checkpoint, ConsoleLines, ProgressBar

ALWAYS = 1e-9
NEVER = 1e9


def inverse(state, batch):
    state.metrics["loss"] = 1 / batch


def lines(bar_arguments, data, *, process=inverse, **limits):
    """What a run writes where there is no terminal."""
    file = io.StringIO()
    names, interval = bar_arguments
    engine = Engine(process, ProgressBar(*names, interval=interval, file=file))
    engine.run(data, **limits)
    return file.getvalue().splitlines()


@pytest.fixture
def terminal():
    """A file that is a terminal of 100 columns, and a function that reads what it shows."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    file = os.fdopen(slave, "w", encoding="utf-8")

    def read():
        file.close()
        text = b""
        try:
            while block := os.read(master, 65536):
                text += block
        except OSError:  # how Linux says that nobody has the other end open
            pass
        return text.decode().replace("\r\n", "\n")

    yield file, read
    file.close()
    os.close(master)


def test_without_a_terminal_each_epoch_ends_with_a_line():
    written = lines(((), NEVER), [1, 2, 4], max_epochs=2)
    assert [re.sub(r"\[.*it/s", "[it/s", line) for line in written] == [
        "epoch 1/2: 100% 3/3 [it/s, loss=0.25]",
        "epoch 2/2: 100% 3/3 [it/s, loss=0.25]",
    ]


def test_without_a_terminal_each_interval_gives_a_line():
    written = lines(((), ALWAYS), [1, 2, 4], max_epochs=1)
    assert re.findall(r"\d/3", "".join(written)) == ["1/3", "2/3", "3/3", "3/3"]


def test_the_metrics_shown_are_those_that_are_named():
    def train_step(state, batch):
        state.metrics.update(loss=torch.tensor(0.123456), lr=1e-5, confusion=torch.eye(2))

    [line] = lines((("lr", "loss"), NEVER), [1], process=train_step, max_epochs=1)
    assert line.endswith("lr=1e-05, loss=0.1235]")
    [line] = lines(((), NEVER), [1], process=train_step, max_epochs=1)
    assert line.endswith("loss=0.1235, lr=1e-05]")


def test_the_end_of_an_epoch_shows_only_what_is_new_in_it():
    file = io.StringIO()
    engine = Engine(inverse, ProgressBar(interval=NEVER, file=file))

    @engine.on(Events.EPOCH_COMPLETED(at=1), stage=Stage.MEASURE)
    def validate(state):
        state.metrics["val/loss"] = 2.0

    engine.run([1], max_epochs=2)
    first, second = file.getvalue().splitlines()
    assert first.endswith("loss=1, val/loss=2]")
    assert second.endswith("loss=1]")
    assert "val" not in second


def test_an_unknown_length_and_a_limit_in_iterations_are_shown_as_what_they_are():
    [line] = lines(((), NEVER), iter([1, 2, 4]), max_epochs=1)
    assert line.startswith("epoch 1/1: 3it [")
    written = lines(((), NEVER), [1, 2, 4], max_iterations=5)
    assert [line.partition(" [")[0] for line in written] == [
        "epoch 1: 100% 3/3",
        "epoch 2: 100% 2/2",
    ]


BOTH = [
    lambda *names: ProgressBar(*names, file=io.StringIO()),
    lambda *names: ConsoleLines(*names, write=lambda line: None),
]


@pytest.mark.parametrize("shows", BOTH, ids=["bar", "lines"])
def test_a_name_that_looks_like_a_slip_of_the_pen_is_told_after_the_first_epoch(shows):
    epochs = []
    engine = Engine(inverse, shows("lossss", "loss"))
    engine.on(Events.EPOCH_COMPLETED, stage=Stage.REPORT)(lambda state: epochs.append(len(caught)))
    with pytest.warns(UserWarning, match="'lossss'.* did you mean 'loss'") as caught:
        engine.run([1], max_epochs=3)
    assert epochs == [1, 1, 1]  # once


@pytest.mark.parametrize("shows", BOTH, ids=["bar", "lines"])
def test_a_name_that_may_still_come_is_unknown_only_at_the_end_of_the_run(shows):
    def train_step(state, batch):
        state.metrics["loss"] = 1.0
        if state.epoch == 3:
            state.metrics["val/loss"] = 1.0

    engine = Engine(train_step, shows("val/loss"))
    engine.run([1], max_epochs=3)
    with pytest.warns(UserWarning, match="no metric has this name.*there is: 'loss'"):
        engine.run([1], max_epochs=2)
    engine.on(Events.EPOCH_COMPLETED(at=2))(lambda state: state.interrupt("to be continued"))
    engine.run([1], max_epochs=3)


def test_a_terminal_shows_a_bar_for_each_epoch(terminal):
    file, read = terminal
    Engine(inverse, ProgressBar(interval=ALWAYS, file=file)).run([1, 2, 4], max_epochs=2)
    *epochs, rest = read().split("\n")
    assert rest == ""
    assert len(epochs) == 2
    for number, epoch in enumerate(epochs, 1):
        frames = epoch.split("\r")
        assert all(len(frame) <= 100 for frame in frames)
        assert re.match(rf"epoch {number}/2: 100%\|.*\| 3/3 \[.*, loss=0.25\]", frames[-1])
        for batches in range(4):
            assert any(f"{batches}/3 [" in frame for frame in frames)


def test_a_terminal_is_left_with_a_closed_bar_when_the_run_fails(terminal):
    file, read = terminal
    engine = Engine(inverse, ProgressBar(interval=NEVER, file=file))
    with pytest.raises(ZeroDivisionError):
        engine.run([1, 2, 0, 4], max_epochs=1)
    shown = read()
    assert shown.endswith("\n")
    assert "3/4" in shown.split("\r")[-1]


def test_metrics_are_not_read_when_a_run_fails():
    class Lost(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function in (torch.Tensor.detach, torch.Tensor.clone):  # which do not wait for it
                return args[0]
            raise RuntimeError("the device is lost")

    def train_step(state, batch):
        state.metrics["loss"] = torch.Tensor._make_subclass(Lost, torch.tensor(1.0))
        raise ValueError("the cause")

    engine = Engine(train_step, ProgressBar(interval=NEVER, file=io.StringIO()))
    with pytest.raises(ValueError, match="the cause") as caught:
        engine.run([1], max_epochs=1)
    assert not any("the device is lost" in note for note in caught.value.__notes__)


def test_metrics_are_read_from_their_device_only_to_be_drawn(terminal):
    class Counted(torch.Tensor):
        reads = 0

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            names = ("item", "tolist", "numpy", "cpu", "__float__", "__int__", "__bool__")
            cls.reads += function.__name__ in names
            return super().__torch_function__(function, types, args, kwargs or {})

    def train_step(state, batch):
        state.metrics.update(
            loss=torch.tensor(1.0).as_subclass(Counted), norm=torch.tensor(1.0).as_subclass(Counted)
        )

    file, read = terminal
    bars = ProgressBar(interval=NEVER, file=file), ProgressBar(interval=NEVER, file=io.StringIO())
    Engine(train_step, *bars).run(range(500), max_epochs=2)
    assert "500/500" in read()
    assert Counted.reads == 2 * 2 + 2  # the bar at the beginning and the end, the line at the end


@pytest.mark.parametrize("on_terminal", [True, False])
def test_the_rate_of_a_run_that_is_carried_on_counts_its_own_iterations(terminal, on_terminal):
    def train_step(state, batch):
        if state.iteration > 90:
            time.sleep(0.02)

    file, read = terminal
    buffer = io.StringIO()
    engine = Engine(train_step)
    state = engine.run(range(100), max_iterations=90)
    engine.add(ProgressBar(interval=ALWAYS, file=file if on_terminal else buffer))
    engine.run(range(100), state=state, max_iterations=100)
    shown = read() if on_terminal else buffer.getvalue()
    assert "91/100" in shown
    assert "1/100 [" not in re.sub("91/100", "", shown)
    assert all(float(rate) <= 50 for rate in re.findall(r"([\d.]+)it/s", shown))


@pytest.mark.filterwarnings("ignore:the metric 'loss' of an evaluation")
def test_evaluations_inside_the_run_are_not_shown():
    file = io.StringIO()
    engine = Engine(inverse, ProgressBar(interval=ALWAYS, file=file))
    engine.on(Events.EPOCH_COMPLETED)(lambda state: engine.evaluate([1, 2], parent=state) and None)
    engine.run([1], max_epochs=1)
    assert len(file.getvalue().splitlines()) == 2


@pytest.mark.filterwarnings("ignore:the metric 'loss' of an evaluation")
def test_an_evaluation_can_have_a_bar_of_its_own():
    file = io.StringIO()
    engine = Engine(inverse)
    engine.evaluation.add(ProgressBar(interval=NEVER, file=file))
    engine.evaluate([1, 2])
    assert file.getvalue().startswith("evaluation: 100% 2/2 [")


def test_it_writes_to_standard_error_by_default(capsys):
    Engine(inverse, ProgressBar()).run([1], max_epochs=1)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("epoch 1/1: 100% 1/1")


def test_two_runs_at_once_have_a_bar_each():
    file = io.StringIO()
    engine = Engine(inverse, ProgressBar(interval=NEVER, file=file))

    @engine.on(Events.ITERATION_COMPLETED(at=2, where=lambda state: state.parent is None))
    def inner(state):
        engine.run([1, 2, 4, 8, 16], max_epochs=1, parent=state)

    engine.run([1, 2, 4], max_epochs=1)
    assert re.findall(r"% (\d/\d)", file.getvalue()) == ["5/5", "3/3"]


@pytest.mark.parametrize("widgets", [True, False])
def test_in_a_notebook_the_cell_shows_a_bar_with_or_without_widgets(processes, widgets):
    script = f"""
        import sys, warnings
        import ipykernel.zmqshell

        if not {widgets}:
            sys.modules["ipywidgets"] = sys.modules["IPython.html.widgets"] = None
            warnings.filterwarnings("ignore", "IProgress not found")
        from camshaft import Engine
        from camshaft.handlers import ProgressBar

        def train_step(state, batch):
            state.metrics["loss"] = 1 / batch

        Engine(train_step, ProgressBar(interval=1e-9)).run([1, 2, 4], max_epochs=2)
    """
    result = processes.run(script)
    assert result.stderr == ""
    assert "epoch 2/2: " in result.stdout
    if not widgets:  # else the text is in the widgets: see tests/test_notebook.py
        assert re.search(r"epoch 2/2: 100%\|.*\| 6/6 \[.*, loss=0.25\]", result.stdout)
        assert result.stdout.count("| 0/6 [") == 1  # one bar for the run


def test_in_a_notebook_a_run_that_goes_on_begins_its_bar_where_it_was(processes):
    script = """
        import sys, warnings
        import ipykernel.zmqshell

        sys.modules["ipywidgets"] = sys.modules["IPython.html.widgets"] = None
        warnings.filterwarnings("ignore", "IProgress not found")
        from camshaft import Engine, Events
        from camshaft.handlers import ProgressBar

        engine = Engine(lambda state, batch: None, ProgressBar())
        stop = engine.on(Events.ITERATION_COMPLETED(at=4))(lambda state: state.interrupt("later"))
        state = engine.run([1, 2, 3], max_epochs=3)
        engine.run([1, 2, 3], state=state, max_epochs=3)
    """
    shown = processes.run(script).stdout
    counts = [int(count) for count in re.findall(r"(\d+)/\d+ \[", shown)]
    assert counts == sorted(counts)
    assert shown.count("| 0/9 [") == 1
    assert ["epoch 2/3: 100%" in shown, "| 4/9 [" in shown] == [True, True]
    assert re.search(r"epoch 3/3: 100%\|.*\| 9/9 \[", shown)


def test_a_file_that_is_given_gets_lines_in_a_notebook_too(processes):
    script = """
        import sys
        import ipykernel.zmqshell
        from camshaft import Engine
        from camshaft.handlers import ProgressBar

        engine = Engine(lambda state, batch: None, ProgressBar(file=sys.stdout))
        engine.run([1, 2, 4], max_epochs=2)
    """
    lines = processes.run(script).stdout.splitlines()
    assert [line.partition(" [")[0] for line in lines] == [
        *("epoch 1/2: 100% 3/3", "epoch 2/2: 100% 3/3")
    ]


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text):
        raise OSError("no space left")


def test_an_output_that_takes_nothing_costs_one_warning(caplog):
    engine = Engine(lambda state, batch: None, ProgressBar(interval=1e-9, file=Full()))
    assert engine.run([1, 2, 3], max_epochs=2).iteration == 6
    assert caplog.messages == ["ProgressBar: OSError: no space left; the run goes on"]


def test_without_standard_error_nothing_is_drawn(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)  # as after `2>&-`, or under pythonw
    engine = Engine(lambda state, batch: None, ProgressBar(interval=ALWAYS))
    assert engine.run([1, 2, 3], max_epochs=2).iteration == 6


def test_what_cannot_be_meant_is_refused():
    seconds: Any = 5
    with pytest.raises(TypeError, match="interval=5"):
        ProgressBar(seconds)
    with pytest.raises(ValueError, match="interval=0"):
        ProgressBar(interval=0)


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
        metrics=["loss"],
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
    engine.add(ConsoleLines(when=EACH(every=4), write=lines.append))
    engine.on(EACH)(lambda state: setattr(clock, "now", clock.now + 1))
    engine.run([(torch.ones(3, 2), torch.zeros(3, 1))] * 8, max_steps=10)
    assert lines[1].startswith("iteration 8  epoch 1  step 4/10  1.0 it/s  eta 0:00:12  loss ")


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


@pytest.mark.parametrize("save", [1, 6, 7, 8])
def test_a_resumed_run_prints_the_lines_of_the_whole_run(save, tmp_path):
    def run(directory, fail_at=None):
        lines: list[str] = []

        def train_step(state, batch):
            if batch == fail_at:
                raise KeyboardInterrupt
            state.metrics["a"] = float(batch)
            if batch % 6 == 0:
                state.metrics["b"] = float(batch)

        when = Events.ITERATION_COMPLETED(every=4)
        checkpoint = Checkpoint(directory, when=Events.ITERATION_COMPLETED(at=save), resume=True)
        engine = Engine(train_step, checkpoint, ConsoleLines(when=when, write=lines.append))
        with suppress(KeyboardInterrupt):
            engine.run(range(1, 13), max_epochs=1)
        return [re.sub(r"  [\d.]+ it/s.*?(?=  a)", "", line) for line in lines]

    whole = run(tmp_path / "whole")
    first = run(tmp_path / "parts", fail_at=9)[: save // 4]
    assert first + run(tmp_path / "parts") == whole
    assert whole[1].endswith("a 8  b 6")

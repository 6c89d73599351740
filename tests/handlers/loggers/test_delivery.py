"""Trackers that are slow, away or broken."""

import pickle
import threading
import time

import pytest

from camshaft import Engine, Events
from camshaft.handlers.loggers import Logger

EACH = Events.ITERATION_COMPLETED


class Board:
    """Collects rows; what a test gives it to do is done before each."""

    def __init__(self, start=None, before=lambda row: None):
        self.start, self.before, self.rows, self.calls = start, before, [], []

    def __call__(self, start):
        self.start = start
        return self

    def write(self, row):
        self.before(row)
        self.rows.append(row.iteration)
        self.calls.append(threading.current_thread())

    def sync(self):
        self.calls.append("sync")

    def close(self):
        self.calls.append("close")


def run(board, count=5, **arguments):
    def train_step(state, batch):
        state.metrics["loss"] = 1 / state.iteration

    logger = Logger(board, name="Board", when=EACH)
    return Engine(train_step, logger).run(range(count), max_epochs=1, **arguments)


def test_all_rows_are_there_when_the_run_is_over():
    board = Board(before=lambda row: time.sleep(0.01))
    run(board, 20)
    assert board.rows == list(range(1, 21))
    assert board.calls[-1] == "close"


def test_the_writer_is_called_by_one_thread_that_ends_with_the_run():
    board = Board()
    run(board)
    [thread] = {call for call in board.calls if call != "close"}
    assert thread is not threading.current_thread()
    assert thread.name == "Logger(Board)"
    assert not thread.is_alive()


def test_training_goes_on_while_a_row_is_written():
    first_written = threading.Event()
    waited = []

    def train_step(state, batch):
        state.metrics["loss"] = 1.0
        if state.iteration == 5:
            first_written.set()

    board = Board(before=lambda row: waited.append(first_written.wait(60)))
    Engine(train_step, Logger(board, name="Board", when=EACH)).run(range(5), max_epochs=1)
    assert waited == [True] * 5
    assert board.rows == [1, 2, 3, 4, 5]


def test_a_save_waits_for_nobody_and_holds_what_was_not_taken():
    may_write, saved = threading.Event(), []
    engine = Engine(lambda state, batch: state.metrics.update(loss=batch))
    engine.add(Logger(Board(before=lambda row: may_write.wait(60)), name="Board", when=EACH))
    engine.on(EACH(at=3))(lambda state: state.save("test"))
    engine.on(Events.SAVING)(lambda state: saved.append(pickle.dumps(state.state_dict())))
    engine.on(EACH(at=4))(lambda state: may_write.set())
    engine.run(range(4), max_epochs=1)

    again, board = Engine(lambda state, batch: state.metrics.update(loss=batch)), Board()
    again.add(Logger(board, name="Board", when=EACH))
    again.on(Events.LOADING)(lambda state: state.load_state_dict(pickle.loads(saved[0])))
    again.run(range(4), max_epochs=1)
    assert board.rows == [1, 2, 3, 4]


def test_a_tracker_that_raises_is_named_once_and_gets_the_other_rows(caplog):
    def refuse(row):
        if row.iteration < 4:
            raise ConnectionError("nobody there")

    board = Board(before=refuse)
    assert run(board, 6).iteration == 6
    assert board.rows == [4, 5, 6]
    [warning] = caplog.records
    assert "Logger(Board) lost a row: ConnectionError: nobody there" in warning.getMessage()


def test_a_tracker_that_cannot_be_opened_is_named_once(caplog):
    def nobody(start):
        raise ConnectionError("nobody there")

    assert run(nobody).iteration == 5
    [warning] = caplog.records
    assert "Logger(Board) could not be opened" in warning.getMessage()


def test_one_that_falls_far_behind_gets_no_more_rows_than_are_kept(caplog, monkeypatch):
    monkeypatch.setattr("camshaft.handlers.loggers.delivery.MOST", 10)
    may_write = threading.Event()
    engine = Engine(lambda state, batch: state.metrics.update(loss=batch))
    board = Board(before=lambda row: may_write.wait(60))
    engine.add(Logger(board, name="Board", when=EACH))
    engine.on(Events.COMPLETED)(lambda state: may_write.set())
    engine.run(range(30), max_epochs=1)
    assert board.rows == list(range(1, 11))
    [warning] = caplog.records
    assert "10 rows behind" in warning.getMessage()


def test_a_run_that_fails_ends_its_loggers_too():
    board = Board()

    def train_step(state, batch):
        state.metrics["loss"] = 1 / batch

    with pytest.raises(ZeroDivisionError):
        Engine(train_step, Logger(board, when=EACH, name="Board")).run([1, 2, 0], max_epochs=1)
    assert board.rows == [1, 2]
    assert board.calls[-1] == "close"


@pytest.mark.parametrize(
    "where",
    ["write", *(pytest.param(each, marks=pytest.mark.slow) for each in ("__init__", "close"))],
)
def test_loggers_that_sleep_for_minutes_do_not_keep_the_process(processes, where):
    script = """
        import logging, sys, time
        from camshaft import Engine, Events
        from camshaft.handlers.loggers import Logger

        logging.basicConfig(format="%(message)s")

        class Slow:
            def __init__(self, start): pass
            def write(self, row): pass
            def sync(self): pass
            def close(self): pass

        setattr(Slow, sys.argv[1], lambda self, *arguments: time.sleep(600))

        def train_step(state, batch):
            state.metrics["loss"] = 1.0

        each = Events.ITERATION_COMPLETED
        engine = Engine(train_step, *(Logger(Slow, name=name, when=each) for name in "ABC"))
        engine.on(each(every=10))(lambda state: state.save("test"))
        engine.on(Events.SAVING)(lambda state: None)
        waited = []
        engine.on(Events.COMPLETED)(lambda state: waited.append(time.monotonic()))
        print(engine.run(range(100), max_epochs=1).iteration)
        print(time.monotonic() - waited[0])
    """
    result = processes.run(script, where, fresh=where == "write")
    iteration, waited = result.stdout.split()
    assert iteration == "100"
    assert float(waited) < 30  # 5 for all three together, on a machine that is not asleep
    warnings = result.stderr.splitlines()
    assert sorted(line.split()[0] for line in warnings) == ["Logger(A)", "Logger(B)", "Logger(C)"]
    assert all("5 seconds" in line for line in warnings)

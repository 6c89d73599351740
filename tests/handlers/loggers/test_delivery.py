"""Trackers that are slow, away or broken, and files that take no more rows."""

import csv
import json
import pickle
import threading

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from camshaft import Engine, Events
from camshaft.handlers.loggers import CSV, JSONLines, Logger, TensorBoard

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


@pytest.mark.parametrize("error", [ConnectionError, SystemExit])
def test_a_tracker_that_cannot_be_opened_is_named_once(caplog, error):
    def nobody(start):
        raise error("nobody there")

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


@pytest.mark.slow
@pytest.mark.parametrize("where", ["write", "__init__", "close"])
def test_loggers_that_sleep_for_minutes_do_not_keep_the_process(processes, where):
    script = """
        import logging, sys, time
        from camshaft import Engine, Events
        from camshaft.handlers.loggers import Logger, delivery

        logging.basicConfig(format="%(message)s")
        delivery.PATIENCE = 1.0

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
    assert float(waited) < 20  # 1 for all three together, on a machine that is not asleep
    warnings = result.stderr.splitlines()
    assert sorted(line.split()[0] for line in warnings) == ["Logger(A)", "Logger(B)", "Logger(C)"]
    assert all(" 1 seconds" in line for line in warnings)
    assert all(("it has taken all rows" in line) == (where == "close") for line in warnings)


def iterations(path):
    """The iterations of the rows of any log."""
    if path.is_dir():
        events = EventAccumulator(str(path)).Reload()
        return [event.step for event in events.Scalars("loss")]
    lines = path.read_text().splitlines()
    if path.suffix == ".csv":
        return [int(row["iteration"]) for row in csv.DictReader(lines)]
    return [json.loads(line)["iteration"] for line in lines]


@pytest.fixture(params=[(JSONLines, "rows.jsonl"), (CSV, "rows.csv"), (TensorBoard, "board")])
def log(request, tmp_path):
    kind, name = request.param
    return kind(tmp_path / name, when=EACH)


@pytest.fixture
def warnings(caplog):
    """What Camshaft has said; TensorBoard's reader speaks too."""
    return lambda: [record for record in caplog.records if record.name == "camshaft"]


def path_of(log):
    return log.directory if isinstance(log, TensorBoard) else log.path


def build(log, at=None):
    """An engine; `at` says what to do at which iteration."""

    def train_step(state, batch):
        if at and state.iteration in at:
            at[state.iteration]()
        state.metrics["loss"] = 1 / state.iteration

    return Engine(train_step, log)


def test_a_full_disk_costs_one_warning_and_the_rows_come_at_the_next_save(log, limit, warnings):
    at = {10: lambda: limit(200), 30: lambda: limit(None)}
    engine, seen = build(log, at), []
    engine.on(EACH(at=[20, 40]))(lambda state: state.save("test"))
    engine.on(Events.SAVING)(lambda state: seen.append(iterations(path_of(log))))
    state = engine.run(range(50), max_epochs=1)
    assert state.iteration == 50
    assert len(seen[0]) < 20
    assert seen[1] == list(range(1, 41))
    assert iterations(path_of(log)) == list(range(1, 51))
    [warning] = warnings()
    assert type(log).__name__ in warning.getMessage()
    assert "File too large" in warning.getMessage()


def test_rows_that_could_not_be_written_come_at_the_end(log, limit):
    build(log, {10: lambda: limit(200), 20: lambda: limit(None)}).run(range(30), max_epochs=1)
    assert iterations(path_of(log)) == list(range(1, 31))


def test_rows_that_could_not_be_written_come_when_the_run_is_resumed(log, limit, warnings):
    saved = []
    engine = build(log, {10: lambda: limit(200)})
    engine.on(EACH(at=25))(lambda state: state.save("test"))
    engine.on(Events.SAVING)(lambda state: saved.append(pickle.dumps(state.state_dict())))
    engine.run(range(30), max_epochs=1)
    limit(None)
    assert len(iterations(path_of(log))) < 25
    again = build(type(log)(path_of(log), when=EACH))
    again.on(Events.LOADING)(lambda state: state.load_state_dict(pickle.loads(saved[0])))
    again.run(range(30), max_epochs=1)
    assert iterations(path_of(log)) == list(range(1, 31))
    assert len(warnings()) == 1


def test_a_log_that_cannot_be_opened_is_tried_again(log, limit, warnings):
    limit(0)
    build(log, {5: lambda: limit(None)}).run(range(10), max_epochs=1)
    assert iterations(path_of(log)) == list(range(1, 11))
    assert len(warnings()) == 1


def test_a_log_that_could_not_be_opened_is_not_mixed_with_another_runs(log, limit):
    build(log).run(range(3), max_epochs=1)
    limit(0)
    build(log, {5: lambda: limit(None)}).run(range(10), max_epochs=1)
    assert iterations(path_of(log)) == list(range(1, 11))


class Raising:
    """Takes no row that is odd, can neither sync nor be closed."""

    rows: list = []  # noqa: RUF012

    def __init__(self, start):
        self.rows.clear()

    def write(self, row):
        if row.iteration % 2:
            raise ZeroDivisionError("an odd row")
        self.rows.append(row.iteration)

    def sync(self):
        pass

    def close(self):
        raise ZeroDivisionError("not to be closed")


def test_a_writer_that_raises_misses_the_row_and_is_named_once(caplog):
    build(Logger(Raising, when=EACH, background=False)).run(range(6), max_epochs=1)
    assert Raising.rows == [2, 4, 6]
    [warning] = caplog.records
    assert "Logger(Raising)" in warning.getMessage()
    assert "an odd row" in warning.getMessage()
    assert "That row is lost" in warning.getMessage()


@pytest.mark.parametrize(
    ("background", "says"), [(True, "could not end well"), (False, "It may lack its last rows")]
)
def test_a_writer_that_cannot_be_closed_is_named(background, says, caplog):
    board = Board()
    board.close = lambda: 1 / 0
    build(Logger(board, name="Board", when=EACH, background=background)).run("ab", max_epochs=1)
    [warning] = caplog.messages
    assert "Logger(Board)" in warning
    assert "division by zero" in warning
    assert says in warning


def test_ctrl_c_comes_through(tmp_path):
    class Interrupted(Raising):
        def write(self, row):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(Logger(Interrupted, when=EACH, background=False)).run(range(6), max_epochs=1)

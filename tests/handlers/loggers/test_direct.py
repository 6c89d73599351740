"""Files that take no more rows, and writers that raise."""

import csv
import json
import pickle
import resource
import signal

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from camshaft import Engine, Events
from camshaft.handlers.loggers import CSV, JSONLines, Logger, TensorBoard

EACH = Events.ITERATION_COMPLETED


def iterations(path):
    """The iterations of the rows of any log."""
    if path.is_dir():
        events = EventAccumulator(str(path)).Reload()
        return [event.step for event in events.Scalars("loss")]
    lines = path.read_text().splitlines()
    if path.suffix == ".csv":
        return [int(row["iteration"]) for row in csv.DictReader(lines)]
    return [json.loads(line)["iteration"] for line in lines]


@pytest.fixture
def limit():
    """Lets files grow to so many bytes, as a full disk would; None for all that there is."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def set_limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (before[0] if size is None else size, before[1]))

    yield set_limit
    set_limit(None)
    signal.signal(signal.SIGXFSZ, handler)


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


@pytest.mark.parametrize("kind", [JSONLines, CSV])
@pytest.mark.parametrize("saves", [True, False])
def test_a_file_that_was_removed_meanwhile_costs_a_warning(kind, saves, tmp_path, caplog):
    path = tmp_path / "rows"
    engine = build(kind(path, when=EACH))
    engine.on(EACH(at=2))(lambda state: path.unlink())
    if saves:
        engine.on(EACH(at=3))(lambda state: state.save("test"))
    assert engine.run(range(6), max_epochs=1).iteration == 6
    [warning] = caplog.messages
    assert "the file was removed" in warning
    assert path.exists() is saves  # then it was opened anew, so the later rows are there


def test_ctrl_c_comes_through(tmp_path):
    class Interrupted(Raising):
        def write(self, row):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(Logger(Interrupted, when=EACH, background=False)).run(range(6), max_epochs=1)

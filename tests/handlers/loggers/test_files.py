"""Files of whole lines: rows of metrics as JSON and as a table."""

import csv
import json
import logging
import math
import os

import pytest
import torch

from camshaft import Engine, Events, supervised
from camshaft.handlers import Checkpoint
from camshaft.handlers.loggers import CSV, Image, ImageFiles, JSONLines, Row, Start


def row(number, loss):
    return Row(number, number, 0, 1, {}, {"loss": loss}, {})


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_a_line_that_does_not_fit_leaves_no_part_of_itself(kind, tmp_path, limit):
    path = tmp_path / "rows"
    writer = kind(path).writer(Start("run", 0))
    writer.write(row(1, 0.5))
    before = path.read_text()
    limit(len(before) + 5)
    with pytest.raises(OSError, match="File too large"):
        writer.write(row(2, 0.25))
    limit(None)
    assert path.read_text() == before
    writer.write(row(3, 0.125))
    writer.close()
    assert path.read_text().removeprefix(before).count("\n") == 1


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_a_line_is_in_the_file_at_once_and_after_what_was_there(kind, tmp_path):
    path = tmp_path / "rows"
    kind(path).writer(Start("run", 0)).write(row(1, 0.5))
    before = path.read_text()
    writer = kind(path).writer(Start("run", 2, is_resumed=True))
    writer.write(row(2, 0.25))
    assert path.read_text().startswith(before)
    assert "0.25" in path.read_text()
    writer.sync()
    writer.close()


@pytest.mark.parametrize("others_column", [False, True])
@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_a_resumed_run_does_not_go_on_with_the_file_of_a_run_that_has_begun_since(
    kind, tmp_path, caplog, others_column
):
    path = tmp_path / "rows"

    def run(name, loss, ends=None):
        def train_step(state, batch):
            state.metrics["loss"] = loss
            if name == "other" and others_column:
                state.metrics["more"] = batch

        engine = Engine(train_step, kind(path, when=Events.ITERATION_COMPLETED))
        saves = Events.ITERATION_COMPLETED(every=2)
        engine.add(Checkpoint(tmp_path / name, when=saves, resume=True))
        engine.on(Events.ITERATION_COMPLETED(at=ends or 99))(crash)
        try:
            engine.run([1.0] * 8, max_epochs=1)
        except CrashError:
            assert ends is not None

    run("own", 0.5, ends=5)
    run("other", 0.25)
    others = path.read_text()
    run("own", 0.5)
    assert [each.read_text() for each in tmp_path.glob("rows.2")] == [others]
    assert "holds the rows of another run" in caplog.messages[-1]
    assert path.read_text().count("0.5") == 5  # from the row on with which it goes on
    assert "0.25" not in path.read_text()


class CrashError(Exception):
    """Ends a run as a kill does."""


def crash(state):
    raise CrashError


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_a_run_that_starts_anew_moves_the_rows_of_others_to_the_next_free_number(
    kind, tmp_path, caplog
):
    def train_step(state, batch):
        state.metrics["loss"] = batch

    path = tmp_path / "rows"
    for batch in (1.5, 2.5, 4.5):
        Engine(train_step, kind(path)).run([batch], max_epochs=1)
    for name, loss in (("rows.1", "1.5"), ("rows.2", "2.5"), ("rows", "4.5")):
        assert loss in (tmp_path / name).read_text()
    assert [f"moved to {path}.{number}" in caplog.text for number in (1, 2)] == [True, True]
    assert all(kind.__name__ in message for message in caplog.messages)


def test_a_script_that_moves_to_another_directory_has_its_logs_in_one(tmp_path, monkeypatch):
    def step(state, batch):
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        state.metrics[f"loss {batch}"] = 1 / batch  # a new column, for which a table is replaced
        state.metrics["image"] = Image(torch.rand(1, 2, 2))
        if batch == 2:
            (tmp_path / "run/rows.jsonl").unlink()  # it is opened again
        os.chdir(tmp_path / "elsewhere")

    monkeypatch.chdir(tmp_path)
    each = Events.ITERATION_COMPLETED
    engine = Engine(step, CSV("run/rows.csv", when=each), JSONLines("run/rows.jsonl", when=each))
    engine.add(ImageFiles("run", when=each)).run([1, 2, 3], max_epochs=1)
    assert not list((tmp_path / "elsewhere").iterdir())
    assert len((tmp_path / "run/rows.csv").read_text().splitlines()) == 4
    assert sorted(path.name for path in tmp_path.glob("run/image/*")) == ["1.png", "2.png", "3.png"]
    assert rows(tmp_path / "run/rows.jsonl")[-1]["loss 3"] == 1 / 3


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_a_link_is_refused_before_anything_runs(kind, tmp_path):
    (tmp_path / "rows").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="rows is not a regular file but a link"):
        Engine(lambda state, batch: None, kind(tmp_path / "rows"))


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_halves_that_a_killed_process_left_are_swept(kind, tmp_path):
    (tmp_path / f".tmp-rows-{'0' * 32}").touch()
    (tmp_path / f".tmp-other-{'0' * 32}").touch()
    Engine(inverse, kind(tmp_path / "rows")).run([1], max_epochs=1)
    assert sorted(os.listdir(tmp_path)) == [f".tmp-other-{'0' * 32}", "rows"]


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_a_directory_is_refused_with_the_line_to_write(kind, tmp_path):
    with pytest.raises(IsADirectoryError, match=rf"{kind.__name__}\('.*/rows\.(jsonl|csv)'\)"):
        Engine(lambda state, batch: None, kind(tmp_path))


EACH = Events.ITERATION_COMPLETED


def inverse(state, batch):
    state.metrics["loss"] = 1 / batch


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_row_holds_the_clocks_and_the_metrics_and_its_folder_is_made(tmp_path):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss, accumulate=2)
    path = tmp_path / "runs" / "first" / "rows.jsonl"
    engine.add(JSONLines(str(path), when=EACH))
    losses = []
    engine.on(EACH)(lambda state: losses.append(state.metrics["loss"].item()))
    engine.run([(torch.ones(3, 2), torch.zeros(3, 1))] * 4, max_epochs=1)
    assert rows(path) == [
        {"iteration": iteration, "step": step, "epoch": 1, "loss": loss, "lr": 0.1}
        for iteration, step, loss in zip([1, 2, 3, 4], [0, 1, 1, 2], losses, strict=True)
    ]


def test_what_is_no_number_can_be_seen_and_read_back_by_any_json_reader(tmp_path):
    def train_step(state, batch):
        state.metrics.update(a=math.nan, b=torch.tensor(math.inf), c=-math.inf)

    Engine(train_step, JSONLines(tmp_path / "rows", when=EACH)).run([1], max_epochs=1)

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    row = json.loads((tmp_path / "rows").read_text(), parse_constant=refuse)
    assert (row["a"], row["b"], row["c"]) == ("NaN", "Infinity", "-Infinity")
    assert math.isnan(float(row["a"]))
    assert float(row["c"]) == -math.inf


def test_an_empty_file_is_used_as_it_is(tmp_path, caplog):
    path = tmp_path / "rows.jsonl"
    path.touch()
    Engine(inverse, JSONLines(path, when=EACH)).run([1], max_epochs=1)
    assert [each.name for each in tmp_path.iterdir()] == ["rows.jsonl"]
    assert not caplog.records


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_rows_are_on_the_disk_before_the_checkpoint_that_counts_on_them(
    tmp_path, kind, monkeypatch
):
    order, synchronise = [], os.fsync

    def note(descriptor):
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        synchronise(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    log = kind(tmp_path / "rows", when=Events.ITERATION_COMPLETED)
    engine = Engine(lambda state, batch: state.metrics.update(loss=batch))
    engine.add(log, Checkpoint(tmp_path / "run", when=Events.ITERATION_COMPLETED(at=2)))
    engine.run([1.0, 2.0], max_epochs=1)
    assert order.index("rows") < order.index("manifest.json")


def test_a_torn_last_line_is_dropped_when_the_run_is_carried_on(tmp_path):
    path = tmp_path / "rows"
    engine = Engine(inverse, JSONLines(path, when=EACH))
    state = engine.run([1, 2], max_epochs=1)
    with path.open("a") as file:
        file.write('{"iteration": 3, "st')
    engine.run([1, 2], state=state, max_epochs=2)
    assert [row["iteration"] for row in rows(path)] == [1, 2, 3, 4]


def test_a_last_line_that_lacks_only_its_end_is_a_row(tmp_path):
    path = tmp_path / "rows"
    engine = Engine(inverse, JSONLines(path, when=EACH(every=2)))
    state = engine.run([1, 2, 4], max_epochs=1)
    path.write_text('{"iteration": 1}')
    engine.run([1, 2, 4], state=state, max_epochs=2)
    assert [row["iteration"] for row in rows(path)] == [1, 3, 4, 6]


@pytest.mark.parametrize(
    ("kind", "line"),
    [(JSONLines, "# a note"), *((CSV, line) for line in ("# a note", "x,0,1,0.5", "2,0,1", ""))],
)
def test_a_file_that_holds_other_things_is_not_cut(tmp_path, kind, line):
    path = tmp_path / "rows"
    engine = Engine(inverse, kind(path, when=EACH))
    state = engine.run([1, 2], max_epochs=1)
    *before, last = path.read_text().splitlines(keepends=True)
    text = "".join([*before, f"{line}\n", last])
    path.write_text(text)
    number = 1 + len(before)
    with pytest.raises(ValueError, match=f"line {number} of .* is no row of a {kind.__name__} log"):
        engine.run([1, 2], state=state, max_epochs=2)
    assert path.read_text() == text


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_what_stands_before_the_rows_that_are_cut_stays_as_it_is(tmp_path, kind):
    path = tmp_path / "rows"
    engine = Engine(inverse, kind(path, when=EACH))
    state = engine.run([1, 2, 4], max_epochs=1)
    *before, first, second, third = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*before, first, "# a note\n", second, third]))
    engine.run([1, 2, 4], state=state, max_epochs=2)
    *_, last = path.read_text().splitlines()
    assert path.read_text().startswith("".join([*before, first, "# a note\n", second, third]))
    assert "6" in last


def bytes_read():
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_a_log_that_lacks_rows_of_the_run_where_it_goes_on_is_told_of(tmp_path, caplog, kind):
    path = tmp_path / "rows"

    def told(epochs, lines=None):
        if lines is not None:
            path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))
        caplog.clear()
        Engine(inverse, kind(path, when=EACH), Checkpoint(tmp_path, resume=True)).run(
            [1, 2, 3], max_epochs=epochs
        )
        return [each for each in caplog.messages if "lacks the last rows before" in each]

    assert not told(1)
    assert not told(2)
    (said,) = told(3, lines=3)
    assert "rows lacks the last rows before iteration 6, where the run goes on: it was cut" in said
    assert not told(4)
    path.unlink()
    assert told(5)


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_a_log_of_a_long_run_is_cut_without_reading_it_all(tmp_path, kind):
    path = tmp_path / "rows"
    engine = Engine(inverse, kind(path, when=EACH))
    state = engine.run([1, 2], max_epochs=1)
    *head, first, second = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*head, *[first] * 60_000, second]))
    inode, size, before = path.stat().st_ino, path.stat().st_size, bytes_read()
    state = engine.run([1, 2], state=state, max_epochs=2)
    assert bytes_read() - before < size / 4
    assert path.stat().st_ino == inode
    *_, then, third, fourth = path.read_text().splitlines(keepends=True)
    assert (then, len(third), len(fourth)) == (second, len(first), len(second))


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_a_log_with_a_second_name_is_cut_under_its_own_alone(tmp_path, kind):
    path, copy = tmp_path / "rows", tmp_path / "backup"
    engine = Engine(inverse, kind(path, when=EACH))
    state = engine.run([1, 2], max_epochs=1)
    os.link(path, copy)
    before = copy.read_text()
    engine.run([1, 2], state=state, max_epochs=2)
    assert copy.read_text() == before
    assert path.read_text().startswith(before)
    assert len(path.read_text().splitlines()) == len(before.splitlines()) + 2


def test_a_log_that_was_added_to_a_run_later_keeps_earlier_rows_of_its_file(tmp_path):
    path = tmp_path / "rows"
    state = Engine(inverse).run([1, 2, 3], max_epochs=1)
    path.write_text("".join(f'{{"iteration": {iteration}}}\n' for iteration in (2, 3, 4)))
    Engine(inverse, JSONLines(path, when=EACH)).run([1, 2, 3], state=state, max_epochs=2)
    assert [row["iteration"] for row in rows(path)] == [2, 3, 4, 5, 6]


def test_a_moment_without_a_new_metric_gives_no_row(tmp_path):
    def train_step(state, batch):
        if state.iteration == 2:
            state.metrics["rare"] = 1.0

    Engine(train_step, JSONLines(tmp_path / "rows", when=EACH)).run([1, 2, 3], max_epochs=1)
    assert [row["iteration"] for row in rows(tmp_path / "rows")] == [2]


def test_the_clocks_win_over_metrics_of_their_names(tmp_path):
    def train_step(state, batch):
        state.metrics.update(epoch=99, step=0, loss=1.0)

    with pytest.warns(UserWarning, match="'epoch'.* is 99, but logs have .* 1, .* 'my_epoch'"):
        Engine(train_step, JSONLines(tmp_path / "rows", when=EACH)).run([1], max_epochs=1)
    assert rows(tmp_path / "rows") == [{"iteration": 1, "step": 0, "epoch": 1, "loss": 1.0}]


def test_a_row_may_be_written_when_the_run_fails(tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    engine = Engine(inverse, JSONLines(tmp_path / "rows", when=Events.FAILED))
    with pytest.raises(ZeroDivisionError):
        engine.run([1, 2, 0], max_epochs=1)
    assert [(row["iteration"], row["loss"]) for row in rows(tmp_path / "rows")] == [(2, 0.5)]


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_line_of_a_table_holds_the_clocks_and_the_metrics_and_its_folder_is_made(tmp_path):
    path = tmp_path / "runs" / "rows.csv"
    Engine(inverse, CSV(str(path), when=EACH)).run([1, 2], max_epochs=1)
    assert table(path) == [
        {"iteration": "1", "step": "0", "epoch": "1", "loss": "1.0"},
        {"iteration": "2", "step": "0", "epoch": "1", "loss": "0.5"},
    ]


def test_a_metric_that_comes_later_gets_a_column_and_what_is_missing_is_empty(tmp_path):
    def train_step(state, batch):
        state.metrics["loss"] = 1 / batch
        if state.iteration == 2:
            state.metrics["a, b"] = 2.0

    path = tmp_path / "rows.csv"
    Engine(train_step, CSV(path, when=EACH)).run([1, 2, 4], max_epochs=1)
    assert path.read_text() == (
        'iteration,step,epoch,loss,"a, b"\n1,0,1,1.0,\n2,0,1,0.5,2.0\n3,0,1,0.25,\n'
    )


def test_numbers_come_back_to_the_last_bit_and_nan_can_be_seen(tmp_path):
    def train_step(state, batch):
        state.metrics.update(third=1 / 3, nan=torch.tensor(math.nan), infinity=-math.inf)

    Engine(train_step, CSV(tmp_path / "rows", when=EACH)).run([1], max_epochs=1)
    [row] = table(tmp_path / "rows")
    assert float(row["third"]) == 1 / 3
    assert math.isnan(float(row["nan"]))
    assert float(row["infinity"]) == -math.inf


def test_a_row_that_was_torn_is_dropped_though_it_looks_like_one(tmp_path):
    path = tmp_path / "rows"
    engine = Engine(inverse, CSV(path, when=EACH))
    state = engine.run([1, 2], max_epochs=1)
    whole = path.read_text()
    path.write_text(whole + "3,0,2,0.3")  # of 0.3333
    engine.run([1, 2], state=state, max_epochs=2)
    assert [float(row["loss"]) for row in table(path)] == [1, 0.5, 1, 0.5]

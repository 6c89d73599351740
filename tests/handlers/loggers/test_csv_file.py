"""Rows of metrics as a table."""

import csv
import math

import pytest
import torch

from camshaft import Engine, Events
from camshaft.handlers.loggers import CSV

EACH = Events.ITERATION_COMPLETED


def inverse(state, batch):
    state.metrics["loss"] = 1 / batch


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_holds_the_clocks_and_the_metrics_and_its_folder_is_made(tmp_path):
    path = tmp_path / "runs" / "rows.csv"
    Engine(inverse, CSV(str(path), when=EACH)).run([1, 2], max_epochs=1)
    assert rows(path) == [
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
    [row] = rows(tmp_path / "rows")
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
    assert [float(row["loss"]) for row in rows(path)] == [1, 0.5, 1, 0.5]


@pytest.mark.parametrize("line", ["# a note", "x,0,1,0.5", "2,0,1", ""])
def test_a_file_that_holds_other_things_is_not_cut(tmp_path, line):
    path = tmp_path / "rows"
    engine = Engine(inverse, CSV(path, when=EACH))
    state = engine.run([1, 2], max_epochs=1)
    text = path.read_text().replace("\n", f"\n{line}\n", 1)
    path.write_text(text)
    with pytest.raises(ValueError, match="line 2 of .* is no row of a CSV log"):
        engine.run([1, 2], state=state, max_epochs=2)
    assert path.read_text() == text

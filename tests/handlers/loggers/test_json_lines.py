"""Rows of metrics as lines of JSON."""

import json
import logging
import math

import pytest
import torch

from camshaft import Engine, Events, supervised
from camshaft.handlers.loggers import JSONLines

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
        {"iteration": iteration, "step": step, "epoch": 1, "loss": loss}
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
    assert [row["iteration"] for row in rows(path)] == [1, 2, 4, 6]


def test_a_file_that_holds_other_things_is_not_cut(tmp_path):
    path = tmp_path / "rows"
    engine = Engine(inverse, JSONLines(path, when=EACH))
    state = engine.run([1, 2], max_epochs=1)
    text = path.read_text().replace("\n", "\n# a note\n", 1)
    path.write_text(text)
    with pytest.raises(ValueError, match="line 2 of .* is no row of a JSONLines log"):
        engine.run([1, 2], state=state, max_epochs=2)
    assert path.read_text() == text


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
        state.metrics.update(epoch=99, loss=1.0)

    Engine(train_step, JSONLines(tmp_path / "rows", when=EACH)).run([1], max_epochs=1)
    assert rows(tmp_path / "rows") == [{"iteration": 1, "step": 0, "epoch": 1, "loss": 1.0}]


def test_a_row_may_be_written_when_the_run_fails(tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    engine = Engine(inverse, JSONLines(tmp_path / "rows", when=Events.FAILED))
    with pytest.raises(ZeroDivisionError):
        engine.run([1, 2, 0], max_epochs=1)
    assert [(row["iteration"], row["loss"]) for row in rows(tmp_path / "rows")] == [(3, 0.5)]

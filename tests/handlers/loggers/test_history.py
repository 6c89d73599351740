"""Rows in memory, as dicts and as a data frame."""

import json
import math

import pytest
import torch

from camshaft import Engine, Events, Stage
from camshaft.handlers import Checkpoint, History, JSONLines, Validate

EACH = Events.ITERATION_COMPLETED


def train_step(state, batch):
    state.metrics["loss"] = torch.tensor(1 / state.iteration)
    if state.iteration == 2:
        state.metrics["rare"] = math.nan


def test_its_rows_are_those_of_a_file(tmp_path):
    history = History(when=EACH)
    engine = Engine(train_step, history, JSONLines(tmp_path / "rows", when=EACH))
    engine.run(range(3), max_epochs=2)
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert [row | {"rare": "NaN"} if "rare" in row else row for row in history.rows] == rows


def test_a_frame_has_a_column_for_each_clock_and_metric():
    pytest.importorskip("pandas")
    history = History(when=EACH)
    Engine(train_step, history).run(range(3), max_epochs=1)
    frame = history.frame()
    assert list(frame.columns) == ["iteration", "step", "epoch", "loss", "rare"]
    assert frame["loss"].tolist() == [row["loss"] for row in history.rows]
    assert frame["rare"].isna().all()


def test_a_name_gives_its_values_and_several_names_the_rows_that_have_all_of_them():
    history = History(when=EACH)
    engine = Engine(train_step, history)

    @engine.on(Events.EPOCH_COMPLETED, stage=Stage.MEASURE)
    def validate(state):
        state.metrics["val/loss"] = 1.0 / state.epoch

    engine.run(range(3), max_epochs=2)
    assert history["loss"] == [float(torch.tensor(1 / n)) for n in range(1, 7)]
    assert history["val/loss"] == [1.0, 0.5]
    assert history["epoch", "val/loss"] == ([1, 2], [1.0, 0.5])
    assert history["iteration", "loss"] == ([*range(1, 7)], history["loss"])
    assert history[("val/loss",)] == history[["val/loss"]] == ([1.0, 0.5],)
    assert math.isnan(history["rare"][0])
    assert ("val/loss" in history, "val/los" in history, None in history) == (True, False, False)


def test_a_name_that_no_row_has_is_an_error_that_lists_those_there_are():
    history = History(when=EACH)
    with pytest.raises(KeyError, match="no row has 'loss'; there is: no row yet; .* on rank 0"):
        history["loss"]
    Engine(train_step, history).run(range(3), max_epochs=1)
    with pytest.raises(KeyError, match="no row has 'los'; there is: 'iteration', .*, 'loss'"):
        history["los"]
    history.rows.append({"val/loss": 1.0})
    with pytest.raises(KeyError, match="no row has 'loss' and 'val/loss'; there is"):
        history["loss", "val/loss"]
    for nonsense in (0, None, ("loss", 1)):
        with pytest.raises(KeyError, match=r"no row has .*all rows: history\.rows"):
            history[nonsense]
    with pytest.raises(KeyError, match=r"all rows: history\.rows"):
        list(history)


@pytest.mark.parametrize("stop_at", [1, 3, 5])
def test_a_resumed_run_has_the_rows_of_the_whole_run(stop_at, tmp_path):
    def run(directory, stop_at=0):
        history = History(when=EACH(every=2))
        engine = Engine(train_step, history, Checkpoint(directory, resume=True))
        engine.on(EACH(at=stop_at or 99))(lambda state: state.interrupt("enough"))
        engine.run(range(3), max_epochs=3)
        return history.rows

    whole = run(tmp_path / "whole")
    run(tmp_path / "parts", stop_at)
    assert repr(run(tmp_path / "parts")) == repr(whole)
    assert [row["iteration"] for row in whole] == [2, 4, 6, 8, 9]


@pytest.mark.filterwarnings("ignore:the metric 'loss' of an evaluation")
def test_each_validation_is_in_a_row_the_one_before_training_too():
    history = History(when=EACH(every=5))
    validate = Validate([1], when=Events.STARTED | EACH(every=2))
    Engine(train_step, history, validate).run(range(9), max_epochs=1)
    assert history["iteration", "val/loss"][0] == [0, 2, 4, 6, 8]
    assert history["iteration", "loss"][0] == [5, 9]


@pytest.mark.filterwarnings("ignore:the metric 'loss' of an evaluation")
def test_each_run_has_rows_of_its_own_and_evaluations_have_none():
    history = History(when=EACH)
    engine = Engine(train_step, history)
    engine.run(range(3), max_epochs=1)
    first = history.rows
    engine.evaluate(range(3))
    engine.run(range(2), max_epochs=1)
    assert ([*map(len, [first, history.rows])], history.rows is first) == ([3, 2], False)


def test_only_the_last_rows_are_kept_and_one_warning_says_so(caplog):
    history = History(when=EACH, most=3)
    Engine(train_step, history).run(range(9), max_epochs=1)
    assert [row["iteration"] for row in history.rows] == [7, 8, 9]
    [message] = caplog.messages
    assert "keeps the last 3 rows" in message


def test_a_history_of_no_rows_is_refused():
    with pytest.raises(ValueError, match="most=0"):
        History(most=0)

"""Rows of metrics as TensorBoard's events, read back by TensorBoard's own reader."""

import math
import sys

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from camshaft import Engine, Events, supervised
from camshaft.handlers.loggers import Image, TensorBoard

EACH = Events.ITERATION_COMPLETED


def inverse(state, batch):
    state.metrics["loss"] = 1 / batch


def scalars(directory, tag):
    events = EventAccumulator(str(directory)).Reload()
    return [(scalar.step, scalar.value) for scalar in events.Scalars(tag)]


def test_metrics_are_drawn_over_the_iterations_under_their_names(tmp_path):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss, accumulate=2)
    engine.add(TensorBoard(tmp_path / "runs" / "first", when=EACH))
    losses = []
    engine.on(EACH)(lambda state: losses.append(state.metrics["loss"].item()))
    engine.run([(torch.ones(3, 2), torch.zeros(3, 1))] * 4, max_epochs=1)
    assert scalars(tmp_path / "runs" / "first", "loss") == list(enumerate(losses, 1))


def test_nan_and_infinity_are_drawn(tmp_path):
    def train_step(state, batch):
        state.metrics.update(nan=torch.tensor(math.nan), infinity=math.inf)

    Engine(train_step, TensorBoard(tmp_path, when=EACH)).run([1], max_epochs=1)
    [(_, nan)] = scalars(tmp_path, "nan")
    assert math.isnan(nan)
    assert scalars(tmp_path, "infinity") == [(1, math.inf)]


def test_what_is_more_than_one_number_is_left_out(tmp_path):
    def train_step(state, batch):
        state.metrics.update(confusion=torch.eye(2), note="text", loss=1.0)

    Engine(train_step, TensorBoard(tmp_path, when=EACH)).run([1], max_epochs=1)
    assert EventAccumulator(str(tmp_path)).Reload().Tags()["scalars"] == ["loss"]


def test_a_run_that_starts_anew_hides_the_rows_of_others_and_leaves_their_files(tmp_path):
    Engine(inverse, TensorBoard(tmp_path, when=EACH)).run([1, 2, 4], max_epochs=1)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    Engine(inverse, TensorBoard(tmp_path, when=EACH)).run([8], max_epochs=1)
    assert scalars(tmp_path, "loss") == [(1, 0.125)]
    assert len(list(tmp_path.iterdir())) == 2
    assert {path: path.read_bytes() for path in before} == before


def test_without_tensorboard_itself_a_graph_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match=r"camshaft\[graph\]"):
        TensorBoard(tmp_path, graph=(torch.nn.Linear(1, 1), torch.ones(1, 1)))


def test_media_of_a_resumed_run_are_there_once(tmp_path):
    def train_step(state, batch):
        if batch in (2, 3):
            state.metrics["shown"] = Image(torch.full((2, 2), batch / 10))

    when = EACH(every=2)
    engine = Engine(train_step, TensorBoard(tmp_path, when=when))
    state = engine.run([1, 2, 3], max_epochs=1)
    engine = Engine(train_step, TensorBoard(tmp_path, when=when))
    engine.run([1, 2, 3], max_epochs=2, state=state)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Images("shown")] == [2, 4, 6]

"""Metrics of an evaluation that nothing averages: those of its last batch."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from camshaft import Engine, Events, supervised
from camshaft.handlers import Average, Metrics, Validate

LAST = "the metric 'loss' of an evaluation is that of its last batch alone"


def per_batch(state, batch):
    state.metrics["loss"] = torch.tensor(batch)
    return {"loss": batch}


def test_a_validation_whose_loss_is_that_of_the_last_batch_is_told_with_what_to_add():
    engine = Engine(per_batch, Validate([1.0, 5.0]))
    with pytest.warns(UserWarning, match=LAST) as found:
        engine.run([1.0], max_epochs=1)
    assert "engine.add(Average('loss'))" in str(found[0].message)
    assert found[0].filename == __file__


def test_an_evaluation_by_itself_is_told_too():
    with pytest.warns(UserWarning, match=LAST):
        assert Engine(per_batch).evaluate([1.0, 5.0]).metrics["loss"] == 5.0


def test_what_is_averaged_is_not_told():
    engine = Engine(per_batch, Average("loss", weight=1), Validate([1.0, 5.0]))
    assert engine.run([1.0], max_epochs=1).metrics["val/loss"] == 3.0


def test_metrics_and_supervised_are_not_told():
    model = nn.Linear(1, 1)
    batches = [(torch.ones(2, 1), torch.ones(2, 1))] * 2
    engine = supervised(model, loss_fn=nn.functional.mse_loss)
    engine.add(Metrics({"error": lambda prediction, target: (prediction - target).mean()}))
    assert set(engine.evaluate(batches).metrics) == {"loss", "error"}


def test_one_batch_is_its_own_mean_and_a_count_is_none():
    assert Engine(per_batch).evaluate([5.0]).metrics == {"loss": 5.0}

    def counting(state, batch):
        state.metrics["seen"] = torch.tensor(state.iteration)

    assert Engine(counting).evaluate("abc").metrics == {"seen": 3}


def test_a_running_mean_in_a_memory_is_not_told():
    @dataclass
    class Sums:
        loss: float = 0.0

    def running(state, batch):
        sums = state.recall(running, Sums)
        sums.loss += batch
        state.metrics["loss"] = sums.loss / state.iteration

    assert Engine(running).evaluate([1.0, 5.0]).metrics["loss"] == 3.0


def test_what_is_written_after_the_batches_is_not_told():
    engine = Engine(per_batch)

    @engine.evaluation.on(Events.COMPLETED)
    def mean(state):
        state.metrics["loss"] = 3.0

    assert engine.evaluate([1.0, 5.0]).metrics["loss"] == 3.0

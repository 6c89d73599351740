"""Outputs of a whole epoch."""

from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from camshaft import Engine, Events, supervised
from camshaft.handlers import Checkpoint, Collect, Validate
from camshaft.handlers.collect import _chain, _deal, _join, _rows


class Pair(NamedTuple):
    prediction: torch.Tensor
    target: torch.Tensor


def collected(outputs, **arguments):
    engine = Engine(lambda state, batch: batch, Collect(**arguments))
    return engine.evaluate(outputs).collected["outputs"]


def test_predictions_and_targets_of_an_evaluation_are_joined_along_the_samples():
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    engine = supervised(
        model, torch.optim.SGD(model.parameters(), 0.1), torch.nn.functional.mse_loss
    )
    engine.add(Collect("predictions"))
    data = [(torch.randn(n, 2), torch.randn(n, 1)) for n in (4, 3, 3)]
    state = engine.evaluate(data)
    found = state.collected["predictions"]
    inputs, targets = (torch.cat(each) for each in zip(*data, strict=True))
    assert torch.equal(found["target"], targets)
    assert torch.allclose(found["prediction"], model(inputs))
    assert not found["prediction"].requires_grad
    assert not found["prediction"].is_inference()


def test_each_part_of_something_nested_is_joined_by_itself():
    first = {"a": (torch.ones(2), ["x", "y"]), "n": torch.tensor(1), "who": "rank"}
    second = {"a": (torch.zeros(1), ["z"]), "n": torch.tensor(2), "who": "file"}
    found = collected([first, second])
    assert found["a"][0].tolist() == [1, 1, 0]
    assert found["a"][1] == ["x", "y", "z"]
    assert found["n"].tolist() == [1, 2]
    assert found["who"] == ["rank", "file"]


def test_samples_of_different_shapes_become_a_list():
    found = collected([torch.ones(2, 3), torch.zeros(1, 4)])
    assert [each.shape for each in found] == [(3,), (3,), (4,)]


def test_select_takes_what_is_wanted_of_the_output():
    outputs = [Pair(torch.ones(2, 3), torch.ones(2)), Pair(torch.ones(1, 3), torch.ones(1))]
    assert collected(outputs, select=lambda output: output.prediction).shape == (3, 3)
    assert set(collected(outputs)) == {"prediction", "target"}


def test_batches_of_different_forms_are_refused():
    with pytest.raises(ValueError, match="of different batches; select the same of each"):
        collected([{"a": torch.ones(1)}, {"b": torch.ones(1)}])


def test_what_is_computed_in_place_later_changes_nothing():
    buffer = torch.zeros(1)

    def process(state, batch):
        return buffer.fill_(batch)

    assert Engine(process, Collect()).evaluate([1, 2]).collected["outputs"].tolist() == [1, 2]


def test_outputs_are_joined_once_and_not_batch_by_batch(monkeypatch):
    joins, cat = [], torch.cat
    monkeypatch.setattr(torch, "cat", lambda *given: joins.append(given) or cat(*given))
    collected([torch.ones(1)] * 50)
    assert len(joins) <= 3


def test_training_is_collected_where_asked_for_each_epoch_anew():
    engine = Engine(lambda state, batch: batch, Collect(training=True))
    seen = []
    engine.on(Events.EPOCH_COMPLETED)(lambda s: seen.append(s.collected["outputs"].tolist()))
    engine.run([torch.tensor([1, 2]), torch.tensor([3])], max_epochs=2)
    assert seen == [[1, 2, 3]] * 2
    silent = Engine(lambda state, batch: batch, Collect())
    assert silent.run([torch.ones(1)], max_epochs=1).collected == {}


@pytest.mark.parametrize("left", [1, 2])
def test_an_epoch_of_training_that_is_left_in_its_middle_is_collected_whole(tmp_path, left):
    def run(limit):
        engine = Engine(lambda state, batch: {"x": batch, "row": [batch.sum().item()]})
        engine.add(Collect(training=True), Checkpoint(tmp_path, resume=True))
        data = [torch.arange(1.0, n + 1) for n in (3, 2, 1)]
        limits = {"max_iterations": limit} if limit else {"max_epochs": 1}
        return engine.run(data, **limits).collected

    run(left)
    found = run(None)["outputs"]
    assert found["x"].tolist() == [1, 2, 3, 1, 2, 1]
    assert found["row"] == [6, 3, 1]


def test_a_validation_in_mid_run_is_looked_at_by_a_handler_of_the_evaluation():
    engine = Engine(lambda state, batch: batch, Collect("x"), Validate([torch.ones(2)]))
    seen = []
    engine.evaluation.on(Events.COMPLETED)(lambda state: seen.append(state.collected["x"].tolist()))
    state = engine.run([torch.ones(1)], max_epochs=1)
    assert seen == [[1, 1]]
    assert "x" not in state.metrics


@given(samples=st.integers(1, 40), ranks=st.integers(1, 5), size=st.integers(1, 7))
def test_shares_that_were_dealt_out_in_turn_come_back_in_order(samples, ranks, size):
    def share(rank):
        own = torch.arange(rank, samples, ranks)
        batches = [{"x": part, "name": [str(i) for i in part.tolist()]} for part in own.split(size)]
        return _join([_rows(batch) for batch in batches], _chain)

    found = _join([share(rank) for rank in range(min(ranks, samples))], _deal)
    assert found["x"].tolist() == list(range(samples))
    assert found["name"] == [str(i) for i in range(samples)]

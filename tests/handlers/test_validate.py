"""Validation during training, and outputs of a whole epoch."""

import random
from typing import NamedTuple

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from camshaft import Engine, Events, supervised
from camshaft.handlers import EMA, Checkpoint, Collect, EarlyStopping, JSONLines, Validate
from camshaft.handlers.outputs import chain, deal, join_parts, rows_of


def build():
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return supervised(model, optimizer, torch.nn.functional.mse_loss)


def batches(count):
    return [(torch.ones(3, 2) * number, torch.zeros(3, 1)) for number in range(1, count + 1)]


def test_two_sets_of_one_name_are_refused():
    with pytest.raises(ValueError, match="would write over the metrics of the first; name them"):
        build().add(Validate(batches(2)), Validate(batches(3)))


def test_its_text_leaves_out_the_batches():
    text = repr(Validate([torch.zeros(9)] * 100, name="test"))
    assert "name='test'" in text
    assert "tensor" not in text


def test_what_holds_no_batches_is_refused():
    with pytest.raises(TypeError, match=r"Validate\(None\): needs the batches to evaluate on"):
        Validate(None)


def test_a_handler_of_evaluations_knows_which_one_it_is_in():
    engine, seen = build(), []
    engine.add(Validate(batches(2)), Validate(batches(3), name="other"))
    engine.evaluation.on(Events.COMPLETED)(lambda state: seen.append(state.name))
    engine.run(batches(4), max_epochs=1)
    engine.evaluate(batches(1))
    assert seen == ["val", "other", ""]


def test_what_the_evaluation_measures_becomes_a_metric_with_the_sets_name():
    engine = build().add(Validate(batches(2)), Validate(batches(3), name="other"))
    state = engine.run(batches(4), max_epochs=1)
    assert set(state.metrics) == {"loss", "val/loss", "other/loss"}
    assert torch.equal(state.metrics["val/loss"], engine.evaluate(batches(2)).metrics["loss"])


def test_it_evaluates_after_each_epoch_and_once_at_an_end_inside_one():
    engine, ends = build().add(Validate(batches(1))), []
    engine.evaluation.on(Events.COMPLETED)(lambda state: ends.append(state.parent.iteration))
    engine.run(batches(4), max_iterations=10)
    assert ends == [4, 8, 10]
    ends.clear()
    engine.run(batches(4), max_epochs=2)
    assert ends == [4, 8]


def test_it_evaluates_by_any_trigger_and_whole_each_time():
    when = Events.STARTED | Events.ITERATION_COMPLETED(every=3)
    engine, seen = build().add(Validate(batches(5), when=when, epoch_length=2)), []
    engine.evaluation.on(Events.COMPLETED)(
        lambda state: seen.append((state.parent.iteration, state.iteration))
    )
    engine.run(batches(7), max_epochs=1)
    assert seen == [(0, 2), (3, 2), (6, 2)]


def test_others_find_the_results_in_the_same_moment_whatever_the_order_of_attachment():
    engine, seen = build(), []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: seen.append("val/loss" in state.metrics))
    engine.add(EarlyStopping("val/loss"), Validate(batches(1)))
    engine.run(batches(2), max_epochs=2)
    assert seen == [True, True]


def test_it_validates_a_hand_written_engine():
    def process(state, batch):
        state.metrics["training" if state.training else "evaluating"] = batch

    engine = Engine(process, Validate([7]))
    assert engine.run([1], max_epochs=1).metrics == {"training": 1, "val/evaluating": 7}


def test_a_cap_larger_than_the_data_counts_no_batch_twice():
    seen = []
    engine = build().add(Validate(batches(3), epoch_length=7))
    engine.evaluation.on(Events.COMPLETED)(lambda state: seen.append(state.iteration))
    engine.run(batches(1), max_epochs=1)
    assert seen == [3]


def test_an_evaluation_that_is_stopped_reports_the_mean_of_what_it_saw():
    engine, losses = build(), []
    engine.evaluation.on(Events.ITERATION_COMPLETED)(
        lambda state: losses.append(state.output.loss.item())
    )
    engine.evaluation.on(Events.ITERATION_COMPLETED(at=3))(lambda state: state.stop("enough"))
    mean = engine.evaluate(batches(5)).metrics["loss"].item()
    assert len(losses) == 3
    assert abs(mean - sum(losses) / 3) < 1e-6


def test_a_validation_at_the_start_is_not_repeated_where_the_run_is_resumed(tmp_path):
    def run(directory, left=None):
        at_start = Events.STARTED | Events.EPOCH_COMPLETED(last=True)
        engine, ends = build().add(Validate(batches(2), when=at_start)), []
        engine.add(
            Checkpoint(directory, resume=True),
            JSONLines(directory / "rows.jsonl", when=Events.ITERATION_COMPLETED),
        )
        engine.evaluation.on(Events.COMPLETED)(
            lambda s: ends.append((s.parent.iteration, s.iteration))
        )
        if left is not None:
            engine.on(Events.ITERATION_COMPLETED(at=left))(lambda state: state.interrupt("x"))
        engine.run(batches(4), max_epochs=2)
        return ends, (directory / "rows.jsonl").read_bytes()

    ends, rows = run(tmp_path / "whole")
    assert ends == [(0, 2), (4, 2), (8, 2)]
    for left in (2, 4, 5):
        before, _ = run(tmp_path / f"{left}", left)
        after, resumed = run(tmp_path / f"{left}")
        assert before + after == ends
        assert resumed == rows


@pytest.mark.parametrize("left", [2, 3, 4, 6])
def test_a_validation_every_few_batches_is_whole_and_fresh_after_a_resume(tmp_path, left):
    def run(directory, left=None):
        when = Events.ITERATION_COMPLETED(every=3)
        engine, ends = build().add(Validate(batches(5), when=when, epoch_length=4)), []
        engine.add(Checkpoint(directory, resume=True))
        engine.evaluation.on(Events.COMPLETED)(
            lambda s: ends.append((s.parent.iteration, s.iteration, s.metrics["loss"].item()))
        )
        if left is not None:
            engine.on(Events.ITERATION_COMPLETED(at=left))(lambda state: state.interrupt("x"))
        engine.run(batches(4), max_epochs=2)
        return ends

    parts = run(tmp_path / "left", left) + run(tmp_path / "left")
    assert [(at, length) for at, length, _ in parts] == [(3, 4), (6, 4)]
    assert parts == run(tmp_path / "whole")


class Noise(torch.nn.Module):
    """What it measures is drawn at random."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, input):
        return self.weight * (torch.rand(()) + random.random() + float(numpy.random.rand()))


def losses(seed, limit=3):
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)
    model = Noise()
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.0), lambda p, t: p)
    found, trained = [], []
    engine.add(Validate(batches(2), seed=seed))
    engine.on(Events.EPOCH_COMPLETED)(lambda s: found.append(s.metrics["val/loss"].item()))
    engine.on(Events.ITERATION_COMPLETED)(lambda s: trained.append(s.metrics["loss"].item()))
    engine.run(batches(2), max_epochs=limit)
    return found, trained


def test_with_a_seed_each_evaluation_draws_the_same_and_training_does_not_notice():
    moving, trained = losses(None)
    still, same = losses(7)
    assert len(set(moving)) == 3
    assert len(set(still)) == 1
    assert same == trained
    assert losses(8)[0] != still


def test_the_weights_of_an_average_are_validated_under_a_name_of_their_own():
    engine = build().add(
        EMA(0.5), Validate(batches(2)), Validate(batches(2), name="ema", weights="ema")
    )
    state = engine.run(batches(4), max_epochs=2)
    assert state.metrics["ema/loss"] != state.metrics["val/loss"]
    ema = engine.evaluate(batches(2), weights="ema").metrics["loss"]
    assert torch.equal(state.metrics["ema/loss"], ema)


def test_an_average_is_validated_at_the_start_as_the_weights_it_begins_with():
    when = Events.STARTED
    engine = build().add(
        EMA(),
        Validate(batches(2), when=when),
        Validate(batches(2), name="ema", when=when, weights="ema"),
    )
    seen = []
    engine.on(Events.STARTED)(lambda s: seen.append((s.metrics["ema/loss"], s.metrics["val/loss"])))
    engine.run(batches(1), max_epochs=1)
    assert len(seen) == 1
    assert torch.equal(*seen[0])


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


@pytest.mark.parametrize("name", ["prediction", "target"])
def test_an_output_with_one_of_the_two_is_collected_whole(name):
    assert set(collected([{name: torch.ones(2), "loss": torch.ones(2)}])) == {name, "loss"}


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
        return join_parts([rows_of(batch) for batch in batches], chain)

    found = join_parts([share(rank) for rank in range(min(ranks, samples))], deal)
    assert found["x"].tolist() == list(range(samples))
    assert found["name"] == [str(i) for i in range(samples)]

"""Validation during training."""

import torch

from camshaft import Engine, Events, supervised
from camshaft.handlers import EarlyStopping, Validate


def build():
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return supervised(model, optimizer, torch.nn.functional.mse_loss)


def batches(count):
    return [(torch.ones(3, 2) * number, torch.zeros(3, 1)) for number in range(1, count + 1)]


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


def test_training_is_the_same_as_without_it():
    def weights(*handlers):
        engine = build().add(*handlers)
        engine.run(batches(5), max_epochs=3)
        return engine.objects["model"].weight

    often = Validate(batches(2), when=Events.ITERATION_COMPLETED(every=2))
    assert torch.equal(weights(), weights(often))


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

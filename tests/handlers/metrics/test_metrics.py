"""Metrics over an epoch."""

import copy
import math
from collections import UserDict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import ignite.metrics
import pytest
import torch
import torchmetrics
from torchmetrics.classification import (
    BinaryRecall,
    MulticlassAccuracy,
    MulticlassF1Score,
    MulticlassJaccardIndex,
)

from camshaft import Engine, Events, supervised
from camshaft.handlers import Average, Checkpoint, Collect, Metrics, Totals, Validate


def build(*handlers):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return supervised(model, optimizer, torch.nn.functional.cross_entropy).add(*handlers)


def batches(*sizes):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(size, 4, generator=generator), torch.randint(3, (size,), generator=generator))
        for size in sizes
    ]


def accuracy_of(engine, data):
    model = engine.objects["model"]
    inputs, targets = (torch.cat(parts) for parts in zip(*data, strict=True))
    return (model(inputs).argmax(1) == targets).float().mean()


@pytest.mark.parametrize(
    "metric",
    [MulticlassAccuracy(3, average="micro"), ignite.metrics.Accuracy()],
    ids=["torchmetrics", "pytorch-ignite"],
)
def test_a_metric_is_computed_over_all_samples_of_the_epoch(metric):
    engine = build(Metrics({"accuracy": metric}))
    data = batches(5, 3, 8)
    result = engine.evaluate(data).metrics["accuracy"]
    assert float(result) == pytest.approx(accuracy_of(engine, data).item(), abs=1e-7)


class Hits(torchmetrics.SumMetric):
    def update(self, prediction, target):
        super().update((prediction.argmax(1) == target).sum())


class Seen(torchmetrics.SumMetric):
    def update(self, prediction, target):
        super().update(torch.tensor(float(len(target))))


@pytest.mark.parametrize("is_collection", [False, True], ids=["mapping", "MetricCollection"])
def test_a_metric_that_stands_in_several_compositions_counts_each_batch_once(is_collection):
    hits, seen = Hits(), Seen()
    metrics = {"seen": seen, "accuracy": hits / seen, "odds": hits / (hits + (seen - hits))}
    if is_collection:
        metrics = torchmetrics.MetricCollection(metrics, compute_groups=False)
    engine, data = build(Metrics(metrics)), batches(5, 3, 8)
    found = engine.evaluate(data).metrics
    accuracy = pytest.approx(accuracy_of(engine, data).item(), abs=1e-7)
    assert (found["seen"], found["accuracy"], found["odds"]) == (16, accuracy, accuracy)


class Pair(NamedTuple):
    prediction: torch.Tensor
    target: torch.Tensor


@dataclass
class Labelled:
    """The names that Hugging Face's models and data sets use."""

    logits: torch.Tensor
    labels: torch.Tensor


@pytest.mark.parametrize(
    "form",
    [
        lambda made, target: {"prediction": made, "target": target},
        lambda made, target: UserDict(logits=made, labels=target),
        Pair,
        Labelled,
        lambda made, target: SimpleNamespace(prediction=made, target=target, other=1),
    ],
    ids=["dict", "other mapping", "named tuple", "dataclass", "object"],
)
def test_prediction_and_target_are_found_in_an_output_of_any_form(form):
    def step(state, batch):
        state.metrics["loss"] = batch[1].float().mean()
        return form(*batch)

    metrics = {"accuracy": MulticlassAccuracy(3, average="micro"), "mean": lambda p, t: p.mean()}
    engine = Engine(step, Metrics(metrics), Average("loss"), Totals(), Collect())
    data = batches(5, 3, 8)
    data = [(x[:, :3], y) for x, y in data]
    prediction, target = (torch.cat(parts) for parts in zip(*data, strict=True))
    found = engine.run(data, max_epochs=1).metrics
    assert found["accuracy"] == (prediction.argmax(1) == target).float().mean()
    assert found["mean"].item() == pytest.approx(prediction.mean().item(), abs=1e-7)
    assert found["loss/epoch"].item() == pytest.approx(target.double().mean().item(), abs=1e-7)
    assert found["total/samples"] == 16
    outputs = engine.evaluate(data).collected["outputs"]
    assert torch.equal(outputs["prediction"], prediction)
    assert torch.equal(outputs["target"], target)


def test_totals_count_the_samples_of_batches_by_name_and_nothing_that_has_no_length():
    engine = Engine(lambda state, batch: None, Totals())
    data = [{"ids": torch.ones(4, 2)}, UserDict(ids=torch.ones(3, 2))]
    assert engine.run(data, max_epochs=1).metrics == {"total/samples": 7}
    with pytest.raises(TypeError, match="Totals got a batch that is a str without tensors; give"):
        engine.run(["ab"], max_epochs=1)


class Count:
    samples = -1

    def reset(self):
        self.samples = 0

    def update(self, prediction, target):
        self.samples += len(target)

    def compute(self):
        return self.samples


def test_anything_that_resets_updates_and_computes_is_a_metric():
    assert build(Metrics({"n": Count()})).evaluate(batches(5, 3)).metrics["n"] == 8


def test_metrics_start_anew_each_epoch():
    engine = build(Metrics({"n": torchmetrics.SumMetric()}, select=lambda output: len(output[2])))
    seen = []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: seen.append(state.metrics["n"].item()))
    engine.run(batches(5, 3), max_epochs=3)
    assert seen == [8.0, 8.0, 8.0]


def test_an_evaluation_in_the_middle_of_an_epoch_disturbs_nothing():
    def training_accuracy(*handlers):
        engine = build(Metrics({"accuracy": MulticlassAccuracy(3)}), *handlers)
        return engine.run(batches(5, 3, 8), max_epochs=2).metrics["accuracy"]

    often = Validate(batches(7), when=Events.ITERATION_COMPLETED)
    assert torch.equal(training_accuracy(), training_accuracy(often))


def test_the_metric_that_was_given_is_never_touched():
    metric = MulticlassAccuracy(3)
    before = copy.deepcopy(metric.metric_state)
    build(Metrics({"accuracy": metric})).run(batches(5), max_epochs=1)
    assert metric.update_count == 0
    assert all(torch.equal(metric.metric_state[name], value) for name, value in before.items())


def test_a_collection_gives_its_names_after_its_own():
    def collection():
        return torchmetrics.MetricCollection(
            {"accuracy": MulticlassAccuracy(3), "f1": MulticlassF1Score(3)}
        )

    assert set(build(Metrics({"all": collection()})).evaluate(batches(5)).metrics) == {
        *("loss", "all/accuracy", "all/f1")
    }
    assert set(build(Metrics(collection())).evaluate(batches(5)).metrics) == {
        *("loss", "accuracy", "f1")
    }


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        (({"threshold": 0.5}, {"threshold": 0.7}), True),
        (({"ignore_index": None}, {"ignore_index": 0}), True),
        (({"threshold": 0.5}, {"validate_args": False}), False),
    ],
)
def test_a_collection_that_may_take_two_metrics_for_one_is_told_of(options, is_told, recwarn):
    def collection(**groups):
        one, other = (BinaryRecall(**each) for each in options)
        return torchmetrics.MetricCollection({"one": one, "other": other}, **groups)

    Metrics(collection(compute_groups=False))
    assert not recwarn.list
    Metrics({"val": collection()})
    assert ["compute_groups=False" in str(each.message) for each in recwarn] == [True] * is_told


def test_a_collection_of_two_metrics_with_tensors_is_not_told_of():
    for average in ("macro", "none"):
        one, other = (MulticlassJaccardIndex(3, average=each) for each in (average, "micro"))
        Metrics(torchmetrics.MetricCollection({"one": one, "other": other}))


def test_a_collection_without_groups_measures_each_metric():
    metrics = {f"at{t}": BinaryRecall(threshold=t / 10) for t in (5, 7)}
    engine = Engine(lambda state, batch: batch)
    engine.add(Metrics(torchmetrics.MetricCollection(metrics, compute_groups=False), select=tuple))
    first = (torch.tensor([0.1, 0.9]), torch.tensor([0, 1]))  # one recall at both thresholds
    second = (torch.tensor([0.6]), torch.tensor([1]))
    found = engine.run([first, second], max_epochs=1).metrics
    assert (found["at5"], found["at7"]) == (1.0, 0.5)


def test_training_may_go_without():
    engine = build(Metrics({"accuracy": MulticlassAccuracy(3)}, training=False))
    assert set(engine.run(batches(5), max_epochs=1).metrics) == {"loss"}
    assert set(engine.evaluate(batches(5)).metrics) == {"loss", "accuracy"}


def test_an_output_of_another_kind_needs_a_selection():
    engine = Engine(lambda state, batch: {"logits": batch})
    engine.add(Metrics({"mean": torchmetrics.MeanMetric()}))
    with pytest.raises(TypeError, match="give select=, a function"):
        engine.run([1.0], max_epochs=1)


class Half:
    def update(self, prediction, target):
        """There is no compute()."""


@pytest.mark.parametrize("wrong", [MulticlassAccuracy, "accuracy", Half()])
def test_what_does_not_measure_is_refused(wrong):
    with pytest.raises(TypeError, match=r"needs the methods reset\(\), update\(\) and compute\(\)"):
        Metrics({"accuracy": wrong})
    with pytest.raises(TypeError, match="needs a dict of metrics by their names"):
        Metrics(["accuracy"])


def loss_of(output):
    return output.loss


@pytest.mark.parametrize(
    "make",
    [
        lambda: Metrics({"m": MulticlassAccuracy(3)}),
        lambda: Metrics(
            {"m": torchmetrics.MetricCollection([MulticlassAccuracy(3), MulticlassF1Score(3)])}
        ),
        lambda: Metrics({"m": torchmetrics.CatMetric()}, select=loss_of),
        lambda: Metrics({"m": ignite.metrics.Accuracy()}),
        lambda: Metrics({"error": error_of, "accuracy": MulticlassAccuracy(3)}),
    ],
    ids=["metric", "collection", "list states", "pytorch-ignite", "sums of functions"],
)
@pytest.mark.parametrize("stop_at", [1, 2, 4])
def test_accumulations_in_the_middle_of_an_epoch_are_saved_with_the_run(make, stop_at, paused):
    data = batches(5, 3, 8)

    def engine():
        return build(make())

    expected = engine().run(data, max_epochs=2).metrics
    first, second = engine(), engine()
    state = paused(first, data, stop_at)
    for name, thing in second.objects.items():
        thing.load_state_dict(first.objects[name].state_dict())
    second.run(data, max_epochs=2, state=state)
    assert state.metrics.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(state.metrics[name])), name


def test_a_metric_of_ones_own_is_saved_with_the_run_and_another_set_is_refused(paused):
    data = batches(5, 3, 8)
    state = paused(build(Metrics({"n": Count()})), data, 2)
    build(Metrics({"n": Count()})).run(data, max_epochs=1, state=state)
    assert state.metrics["n"] == 16

    state = paused(build(Metrics({"n": Count()})), data, 2)
    other = build(Metrics({"n": Count(), "m": Count()}))
    with pytest.raises(ValueError, match=r"Metrics has \['m', 'n'\] and the saved run had \['n'\]"):
        other.run(data, max_epochs=1, state=state)


def error_of(prediction, target):
    return (prediction.argmax(1) != target).float().mean()


def test_a_function_is_averaged_over_all_samples_of_training_and_evaluation():
    engine = build(Metrics({"error": error_of}))
    data = batches(5, 3, 8)
    found = engine.evaluate(data).metrics["error"]
    assert float(found) == pytest.approx(1 - accuracy_of(engine, data).item(), abs=1e-7)
    assert isinstance(found, torch.Tensor)
    assert 0 <= float(engine.run(data, max_epochs=1).metrics["error"]) <= 1


def averaged(records, **arguments):
    """The metrics of a run whose process function returns these records."""
    arguments.setdefault("weight", 1)
    metrics = Metrics(lambda record: record, select=lambda record: record, **arguments)
    return Engine(lambda state, batch: batch, metrics).run(records, max_epochs=1).metrics


@pytest.mark.parametrize("number", [float, torch.tensor], ids=["floats", "tensors"])
def test_a_name_that_some_batches_lack_has_the_mean_over_those_that_had_it(number):
    records = [{"a": number(1.0)}, {"a": number(3.0), "b": number(4.0)}, {"b": number(6.0)}]
    assert averaged(records) == {"a": 2.0, "b": 5.0}
    nested = [
        {"a": number(1.0), "b": {"c": number(2.0)}},
        {"b": {"c": number(4.0), "d": number(7.0)}},
    ]
    assert averaged(nested) == {"a": 1.0, "b/c": 3.0, "b/d": 7.0}
    assert averaged([{}]) == {}


@pytest.mark.parametrize("number", [float, torch.tensor], ids=["floats", "tensors"])
def test_nan_is_seen_in_the_mean_unless_it_is_to_be_left_out(number):
    records = [{"a": number(1.0)}, {"a": number(math.nan)}, {"a": number(3.0)}]
    assert math.isnan(averaged(records)["a"])
    assert averaged(records, skip_nan=True) == {"a": 2.0}
    assert math.isnan(averaged(records[1:2], skip_nan=True)["a"])


@pytest.mark.parametrize(
    "weight",
    [lambda record: record["n"], lambda record: torch.tensor(record["n"])],
    ids=["number", "tensor"],
)
def test_the_weight_of_a_batch_is_what_one_says(weight):
    records = [{"loss": 0.7, "n": 256}, {"loss": 0.8, "n": 256}, {"loss": 0.9, "n": 10}]
    mean = float(averaged(records, weight=weight)["loss"])
    assert mean == pytest.approx((0.7 * 256 + 0.8 * 256 + 0.9 * 10) / 522, abs=1e-12)
    assert round(mean, 4) == 0.7529


@pytest.mark.parametrize(
    ("record", "weight", "says"),
    [
        ({"a": 1.0}, None, "got an output that is a dict, .* give weight="),
        ({"a": torch.ones(2)}, 1, r"'a' is no single number but of shape \(2,\)"),
        ({"a": "high"}, 1, "'a' is no single number but str"),
        (1.0, 1, "without a name"),
    ],
)
def test_what_a_function_may_not_return_is_refused(record, weight, says):
    with pytest.raises(TypeError, match=says):
        averaged([record], weight=weight)


def test_the_graph_of_what_a_function_returns_is_not_kept():
    weight = torch.nn.Parameter(torch.ones(()))
    handler = Metrics({"loss": lambda output: output}, select=lambda output: output, weight=1)
    engine = Engine(lambda state, batch: weight * batch, handler)
    assert not engine.run([1.0, 2.0], max_epochs=1).metrics["loss"].requires_grad


def test_arguments_are_checked_in_the_first_batch_of_a_run_only():
    metric = MulticlassAccuracy(3)
    engine = build(Metrics({"accuracy": metric}))
    looks = []
    engine.on(Events.ITERATION_COMPLETED)(
        lambda state: looks.append(state.memory.saved["Metrics"].metrics["accuracy"].validate_args)
    )
    engine.run(batches(5, 3), max_epochs=1)
    assert looks == [False, False]
    assert metric.validate_args
    wrong = [(torch.randn(4, 4), torch.tensor([0, 1, 2, 1]))]
    with pytest.raises(ValueError, match="number of classes"):
        build(Metrics({"accuracy": MulticlassAccuracy(4)})).run(wrong, max_epochs=1)


def test_one_result_of_a_metric_that_is_given_alone_is_called_as_its_class():
    metrics = build(Metrics(MulticlassAccuracy(3))).run(batches(4), max_epochs=1).metrics
    assert metrics.keys() == {"loss", "MulticlassAccuracy"}


def test_a_function_with_other_arguments_is_told_what_it_gets():
    engine = build(Metrics({"largest": lambda output: output.prediction.max()}))
    with pytest.raises(TypeError, match=r"'largest' with 2 arguments.* is function\(output\)"):
        engine.run(batches(4), max_epochs=1)


def test_a_function_written_in_c_without_a_signature_is_a_metric():
    engine = build(Metrics({"distance": torch.dist}, select=lambda o: (o.prediction, o.prediction)))
    assert engine.run(batches(4), max_epochs=1).metrics["distance"] == 0


def test_an_output_that_select_returns_is_one_argument():
    model = torch.nn.Linear(2, 1)
    data = [(torch.ones(3, 2), torch.ones(3, 1))]
    engine = supervised(
        model, torch.optim.SGD(model.parameters(), 0.1), torch.nn.functional.mse_loss
    )

    def look(output):
        return {"size": output.prediction.shape[0]}

    engine.add(Metrics(look, select=lambda output: output, training=False), Validate(data))
    assert engine.run(data, max_epochs=1).metrics["val/size"] == 3.0


def test_a_function_without_a_name_is_called_as_it_is_written_where_it_is_refused():
    def look(output):
        return {"size": 1}

    engine = Engine(lambda state, batch: {"prediction": batch, "target": batch})
    with pytest.raises(TypeError, match="Metrics calls the function 'look' with 2 arguments"):
        engine.add(Metrics(look)).run([torch.ones(2)], max_epochs=1)


@pytest.mark.parametrize("kind", ["MinMaxMetric", "MetricTracker"])
def test_what_keeps_values_over_epochs_is_refused_with_what_does_it_instead(kind):
    import torchmetrics

    keeper = getattr(torchmetrics.wrappers, kind)(torchmetrics.MeanSquaredError())
    with pytest.raises(TypeError, match=rf"got a {kind}, which keeps values .*History\(\)"):
        Metrics({"mse": keeper})


def test_an_epoch_with_a_batch_without_target_has_no_result_after_a_resume_either(tmp_path):
    def run(**limits):
        engine = Engine(lambda state, batch: {"prediction": batch[0], "target": batch[1]})
        handlers = Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED, resume=True)
        engine.add(Metrics({"mean": torchmetrics.MeanSquaredError()}), handlers)
        pair = torch.ones(2), torch.ones(2)
        return engine.run([pair, (torch.ones(2), None), pair, pair], max_epochs=1, **limits)

    run(max_iterations=2)
    assert "mean" not in run().metrics


def test_an_error_of_a_metric_says_which_one_it_is_and_what_it_was_given():
    model = torch.nn.Linear(4, 3)
    engine = supervised(model, loss_fn=torch.nn.CrossEntropyLoss())
    engine.add(Metrics({"accuracy": MulticlassAccuracy(3)}))
    with pytest.raises((RuntimeError, ValueError)) as failed:  # soft targets, as mixup makes
        engine.evaluate([(torch.randn(8, 4), -torch.ones(8, 3))])
    expected = "in the metric 'accuracy', given float32[8, 3] and float32[8, 3]; Metrics(..., sel"
    assert expected in "\n".join(failed.value.__notes__)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Average("loss", over=3), Average("loss", over=9)),
        (Average("loss"), Average("loss", weight=1)),
        (Metrics({"error": torchmetrics.MeanMetric()}), Metrics({"error": lambda p, t: 0.0})),
        (Totals({"tokens": len}), Totals({"tokens": lambda batch: 1})),
        (Collect("outputs"), Collect("outputs", select=lambda output: output)),
    ],
    ids=["lengths", "weights", "metrics", "totals", "outputs"],
)
def test_two_results_of_one_name_are_refused(first, second):
    with pytest.raises(ValueError, match=r"^two .* write '.*': .* give one of them another name$"):
        Engine(lambda state, batch: None).add(first, second)


def test_one_mean_may_be_written_by_two_triggers():
    engine = Engine(lambda state, batch: state.metrics.update(loss=batch))
    means = Average("loss", weight=1), Average("loss", weight=1, when=Events.ITERATION_COMPLETED)
    assert engine.add(*means).run([1.0, 3.0], max_epochs=1).metrics["loss/epoch"] == 2

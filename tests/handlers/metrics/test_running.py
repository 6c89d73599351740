"""What one run measures with."""

import json

import pytest
import torch
import torchmetrics
from torchmetrics.classification import MulticlassAccuracy

from camshaft import Events, supervised
from camshaft.handlers import Average, Checkpoint, EarlyStopping, JSONLines, Metrics, Totals
from camshaft.handlers.metrics.running import RunningMetrics


def test_what_was_given_is_copied_and_functions_are_not():
    metric = torchmetrics.SumMetric()
    running = RunningMetrics.of({"sum": metric, "abs": abs}, skip_nan=False)
    running.update((3.0,))
    running.add((-3.0,), 2)
    assert running.results() == {"abs": 3.0, "sum": 3.0}
    assert metric.update_count == 0
    running.reset()
    running.update((1.0,))
    assert running.results() == {"sum": 1.0}


def test_other_metrics_than_those_that_were_saved_are_refused():
    saved = RunningMetrics.of({"abs": abs}, skip_nan=False).state_dict()
    with pytest.raises(ValueError, match=r"Metrics has \['n'\] and the saved run had \['abs'\]"):
        RunningMetrics.of({"n": abs}, skip_nan=False).load_state_dict(saved)


def error_of(prediction, target):
    wrong = (prediction.argmax(1) != target).float()
    return {"all": wrong.mean(), "last": {"one": wrong[-1]}}


def train(directory, stop_at=None):
    """Train with everything that accumulates, with a checkpoint on the disk; the rows written."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    data = [
        (torch.randn(n, 4, generator=generator), torch.randint(3, (n,), generator=generator))
        for n in (5, 3, 8, 2)
    ]
    always = Events.ITERATION_COMPLETED
    engine = supervised(model, optimizer, torch.nn.functional.cross_entropy)
    engine.add(
        Metrics({"accuracy": MulticlassAccuracy(3), "error": error_of}),
        Average("loss", when=always),
        Average("loss", over=3, when=always),
        Average("loss", decay=0.7, when=always),
        Totals({"samples": lambda batch: len(batch[0])}, when=always),
        EarlyStopping("loss/epoch", patience=9),
        Checkpoint(directory / "run", when=always, resume=True),
        JSONLines(directory / "rows.jsonl", when=always | Events.EPOCH_COMPLETED),
    )
    if stop_at is not None:
        engine.on(always(at=stop_at))(lambda state: state.interrupt("the machine is taken away"))
    engine.run(data, max_epochs=2)
    return [json.loads(line) for line in (directory / "rows.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("stop_at", [1, 3, 4, 6])
def test_the_rows_of_an_interrupted_run_are_those_of_an_uninterrupted_one(tmp_path, stop_at):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    expected = train(whole)
    train(parts, stop_at)
    assert train(parts) == expected
    assert {"error/all", "error/last/one", "loss/epoch", "loss/mean"} <= {
        *expected[-2],
        *expected[-1],
    }

"""In whichever order handlers are attached, the run is the same."""

import json
import random
from itertools import permutations
from math import factorial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torchmetrics import MeanMetric

from camshaft import Events, supervised
from camshaft.handlers import (
    Checkpoint,
    EarlyStopping,
    JSONLines,
    LRSchedule,
    Metrics,
    Validate,
    best,
    checkpoints,
    latest,
)

COUNT = 6
ORDERS = list(permutations(range(COUNT)))


def handlers(optimizer, data, directory):
    return (
        Metrics({"mean": MeanMetric()}, select=lambda output: output.prediction),
        Validate(data),
        EarlyStopping("val/loss", mode="max", patience=2),  # it falls
        LRSchedule(StepLR(optimizer, 2, 0.5)),
        Checkpoint(directory, keep=latest(1) | best(1, "val/mean", "max"), background=False),
        JSONLines(directory / "rows.jsonl", when=Events.STEP_COMPLETED | Events.EPOCH_COMPLETED),
    )


def outcome(order, directory):
    """All that a run in this order leaves behind, but for the order itself."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    data = [(torch.ones(2, 2) * n, torch.zeros(2, 1)) for n in (1.0, 0.5)]
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    made = handlers(optimizer, data, directory)
    engine.add(*(made[number] for number in order))
    state = engine.run(data, max_epochs=5)
    left = {"stop": (state.iteration, state.stop_reason)}
    left["rows"] = [json.loads(row) for row in (directory / "rows.jsonl").read_text().splitlines()]
    for saved in checkpoints(directory):
        tree = json.loads((saved.path / "state.json").read_text())
        for file in saved.path.glob("*.safetensors"):
            left[f"{saved.path.name}/{file.name}"] = file.read_bytes()
        left[saved.path.name] = without_order(tree), saved.manifest.metrics
    return left


def without_order(value):
    """A saved tree without the list of handlers, the numbers of writes, times, and a run's id."""
    if isinstance(value, dict):
        of_order = {"handlers", "written", "looked_at", "passed"}
        return {
            name: without_order(each)
            for name, each in value.items()
            if name not in of_order and not (name == "run" and isinstance(each, str))
        }
    return [without_order(each) for each in value] if isinstance(value, list) else value


@pytest.fixture
def directory(tmp_path):
    """In memory, where there is such a place: hundreds of runs that wait for a disk take long."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else tmp_path
    with TemporaryDirectory(dir=place) as made:
        yield Path(made)


def compare(orders, directory):
    expected = outcome(ORDERS[0], directory / "expected")
    assert expected["stop"][0] == 6
    assert len(expected["rows"]) == 6 + 3
    for number, order in enumerate(orders):
        assert outcome(order, directory / f"{number}") == expected, order


@pytest.mark.slow
def test_orders_drawn_at_random_leave_the_same_files_and_rows_and_stop_at_the_same_step(directory):
    assert len(ORDERS) == factorial(COUNT) == 720
    compare(random.Random(0).sample(ORDERS, 119) + ORDERS[-1:], directory)


@pytest.mark.soak
def test_all_orders_leave_the_same_files_and_rows_and_stop_at_the_same_step(directory):
    compare(ORDERS, directory)

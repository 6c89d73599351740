"""The script that the library is built for runs as it is written."""

import torch
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from camshaft import Events, supervised
from camshaft.handlers import (
    Checkpoint,
    ClipGradNorm,
    EarlyStopping,
    LRSchedule,
    Metrics,
    ProgressBar,
    TensorBoard,
    Validate,
    best,
    latest,
)


def run(directory, capsys, max_epochs=20):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = StepLR(optimizer, 100)
    loss_fn = torch.nn.functional.cross_entropy
    inputs = torch.randn(600, 4, generator=torch.Generator().manual_seed(1))
    targets = inputs.argmax(1)
    train_loader = DataLoader(TensorDataset(inputs[:400], targets[:400]), 4, shuffle=True)
    val_loader = DataLoader(TensorDataset(inputs[400:500], targets[400:500]), 50)
    test_loader = DataLoader(TensorDataset(inputs[500:], targets[500:]), 50)

    engine = supervised(model, optimizer, loss_fn, precision="bf16", accumulate=4)

    engine.add(
        ClipGradNorm(1.0),
        LRSchedule(scheduler),
        Metrics({"accuracy": MulticlassAccuracy(10)}),
        Validate(val_loader, name="val"),
        EarlyStopping("val/accuracy", mode="max", patience=3),
        Checkpoint(directory, keep=latest(2) | best(1, "val/accuracy", mode="max"), resume=True),
        TensorBoard(directory),
        ProgressBar(),
    )

    @engine.on(Events.ITERATION_COMPLETED(every=100))
    def report(state):
        print(state.iteration, state.metrics["loss"])

    state = engine.run(train_loader, max_epochs=max_epochs)
    test = engine.evaluate(test_loader)
    print(state.stop_reason, test.metrics)
    return state, test, capsys.readouterr()


def test_the_script_of_the_design_runs_and_runs_again(tmp_path, capsys):
    directory = tmp_path / "runs" / "digits"
    state, test, printed = run(directory, capsys)
    assert state.stop_reason == "max_epochs" or state.stop_reason.startswith("early stopping")
    assert state.step * 4 == state.iteration == state.epoch * 100
    assert test.metrics["accuracy"] > 0.3
    assert set(test.metrics) == {"loss", "accuracy"}
    assert printed.out.startswith("100 tensor(")
    assert "epoch 1/20: 100%" in printed.err

    again, test_again, printed = run(directory, capsys)
    assert (again.iteration, again.stop_reason) == (state.iteration, state.stop_reason)
    assert torch.equal(test_again.metrics["accuracy"], test.metrics["accuracy"])
    assert "epoch" not in printed.err

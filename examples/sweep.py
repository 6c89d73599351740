"""Look for settings on scikit-learn's digits: a range of learning rates first, then a sweep.

    python examples/sweep.py

Optuna chooses the settings of each trial and prunes those that are behind. Kill it in the middle
of a trial and start it again: once the heartbeat of the dead process is missed, the trial goes on
from its last checkpoint. Several processes may share the study.
"""

import argparse
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from torchmetrics.classification import MulticlassAccuracy

from camshaft import Engine, Output, supervised
from camshaft.handlers import Checkpoint, Metrics, OptunaPruning, Validate, find_lr

FINISHED = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)


def load_data() -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Loaders for training and validation: 1500 and 297 images of 8 x 8 pixels."""
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32) / 16
    data = TensorDataset(pixels, torch.tensor(labels))
    train, val = random_split(data, [1500, 297], torch.Generator().manual_seed(0))
    return DataLoader(train, 50, shuffle=True), DataLoader(val, 297)


def build(lr: float, width: int, dropout: float) -> Engine[Any, Output]:
    """The engine that trains a network of two layers with these settings."""
    torch.manual_seed(0)
    hidden = [nn.Linear(64, width), nn.ReLU(), nn.Dropout(dropout)]
    model = nn.Sequential(*hidden, nn.Linear(width, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    return engine.add(Metrics({"accuracy": MulticlassAccuracy(10, average="micro")}))


def objective(trial: optuna.Trial, directory: Path, rate: float, max_epochs: int) -> float:
    """Train with the settings of a trial; return the accuracy that Optuna maximises."""
    engine = build(
        lr=trial.suggest_float("lr", rate / 10, rate * 10, log=True),
        width=trial.suggest_categorical("width", [16, 64, 256]),
        dropout=trial.suggest_float("dropout", 0.0, 0.5),
    )
    # A trial that takes the place of a killed one has another number, and the same attributes.
    folder = trial.user_attrs.get("folder", str(trial.number))
    trial.set_user_attr("folder", folder)
    train, val = load_data()
    engine.add(
        Validate(val),
        OptunaPruning(trial, metric="val/accuracy"),
        Checkpoint(directory / folder, resume=True),
    )
    state = engine.run(train, max_epochs=max_epochs)  # raises TrialPruned when all is closed
    return float(state.metrics["val/accuracy"])


def main(arguments: Sequence[str] | None = None) -> optuna.Study:
    """Find a range of learning rates, then run trials until there are enough."""
    parser = argparse.ArgumentParser(description="A sweep on scikit-learn's digits.")
    parser.add_argument("--directory", type=Path, default=Path("runs/sweep"))
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--max-epochs", type=int, default=10)
    parser.add_argument("--heartbeat", type=int, default=10, help="seconds")
    options = parser.parse_args(arguments)
    options.directory.mkdir(parents=True, exist_ok=True)

    rate = find_lr(build(lr=1e-3, width=64, dropout=0.2), load_data()[0]).suggestion
    print(f"the loss falls at a learning rate of {rate:.2g}; look around it")

    # Optuna calls heartbeats experimental; without them a killed trial stays "running" for ever.
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    storage = optuna.storages.RDBStorage(
        f"sqlite:///{options.directory}/study.db",
        heartbeat_interval=options.heartbeat,
        grace_period=2 * options.heartbeat,
        heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(
            inherit_intermediate_values=True
        ),
    )
    study = optuna.create_study(
        storage=storage,
        study_name="digits",
        direction="maximize",
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=2),
    )
    if len(study.get_trials(deepcopy=False, states=FINISHED)) < options.trials:
        train = partial(
            objective, directory=options.directory, rate=rate, max_epochs=options.max_epochs
        )
        enough = optuna.study.MaxTrialsCallback(options.trials, states=FINISHED)
        study.optimize(train, callbacks=[enough])
    print(f"best of {options.trials} trials: accuracy {study.best_value:.2%}, {study.best_params}")
    return study


if __name__ == "__main__":
    main()

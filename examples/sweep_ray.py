"""The same by Ray Tune: trials side by side, each continued from its checkpoint after a failure.

python examples/sweep_ray.py
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler


def train(config: dict[str, Any]) -> None:
    """One trial, in a process of Ray's, which has to import what it needs."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset, random_split

    from camshaft import supervised
    from camshaft.handlers import Checkpoint, RayReport, Validate

    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    train_set, val_set = random_split(data, [1500, 297])
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    engine = supervised(model, optimizer, nn.functional.cross_entropy)

    given = tune.get_checkpoint()  # of a trial that was paused, or whose process has died
    checkpoint = Checkpoint("checkpoints", resume=given.to_directory() if given else True)
    engine.add(Validate(DataLoader(val_set, 297)), checkpoint, RayReport(checkpoint))
    engine.run(DataLoader(train_set, 50, shuffle=True), max_epochs=config["max_epochs"])


def main(arguments: Sequence[str] | None = None) -> tune.ResultGrid:
    """Run trials, of which ASHA stops those that are behind."""
    parser = argparse.ArgumentParser(description="A sweep on scikit-learn's digits by Ray Tune.")
    parser.add_argument("--directory", type=Path, default=Path("runs/sweep_ray"))
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--max-epochs", type=int, default=8)
    options = parser.parse_args(arguments)

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    tuner = tune.Tuner(
        train,
        param_space={"lr": tune.loguniform(1e-4, 1e-1), "max_epochs": options.max_epochs},
        tune_config=tune.TuneConfig(
            metric="val/loss",
            mode="min",
            num_samples=options.trials,
            scheduler=ASHAScheduler(max_t=options.max_epochs, grace_period=2),
        ),
        run_config=tune.RunConfig(
            name="digits",
            storage_path=str(options.directory.absolute()),
            failure_config=tune.FailureConfig(max_failures=2),
        ),
    )
    results = tuner.fit()
    best = results.get_best_result()
    assert best.metrics is not None
    print(f"best of {len(results)} trials: loss {best.metrics['val/loss']:.3f}, {best.config}")
    return results


if __name__ == "__main__":
    main()

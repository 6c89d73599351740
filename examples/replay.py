"""Train so that steps are checked, and any past one can be computed again.

    python examples/replay.py    # kill it at any time, and run it again

    camshaft replay runs/replay --iteration 137 -- python examples/replay.py
    camshaft replay runs/replay --iteration 137 --keep 3 -- python examples/replay.py
    camshaft replay runs/replay --iteration 137 --pdb -- python examples/replay.py

The first prints checksums of what iteration 137 reads and computes, and compares them with those
that the run has written. The second keeps what layer 3 returns in it, the third stops before it.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Events, supervised
from camshaft.handlers import (
    Checkpoint,
    Fingerprints,
    Journal,
    JSONLines,
    ReplayCheck,
    every,
    latest,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, or carry on, to the end."""
    parser = argparse.ArgumentParser(description="Train on digits, with a way back to any step.")
    parser.add_argument("--directory", type=Path, default=Path("runs/replay"))
    parser.add_argument("--max-epochs", type=int, default=5)
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    model = nn.Sequential(
        *(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
    )
    engine = supervised(
        model, torch.optim.AdamW(model.parameters(), lr=2e-3), nn.functional.cross_entropy
    )
    engine.add(
        ReplayCheck(every=50),  # computes each 50th step twice, and ends the run if a bit differs
        # The way back: a replay begins at the nearest checkpoint before the step.
        Checkpoint(
            options.directory,
            when=Events.ITERATION_COMPLETED(every=25),
            keep=latest(2) | every(100),
            resume=True,
        ),
        Fingerprints(options.directory / "fingerprints.jsonl"),
        JSONLines(options.directory / "rows.jsonl", when=Events.ITERATION_COMPLETED),
        Journal(options.directory, config=options),
    )
    state = engine.run(
        DataLoader(data, 32, shuffle=True),
        max_epochs=options.max_epochs,
        max_batches=options.max_batches,
    )
    print(f"iteration {state.iteration}: loss {state.metrics['loss']:.4f}")


if __name__ == "__main__":
    main()

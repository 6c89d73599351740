"""Change a run while it runs: its learning rate, its length, its accumulation.

    python examples/steering.py                          # or torchrun --nproc-per-node=2 ...

    camshaft set runs/steering optimizer.initial_lr=5e-4 --at +200     # in another terminal
    camshaft set runs/steering max_epochs=60 Update.accumulate=2
    camshaft set runs/steering stop                      # saves; the script goes on when run again

Kill the script with `kill -9` at any time, and run it again: it makes each change at its place.
So does a run from the beginning, elsewhere, that has the ledger of this one:

    mkdir runs/again && cp -r runs/steering/steering runs/again
    python examples/steering.py --directory runs/again
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from camshaft import Events, loader, ranks, supervised
from camshaft.handlers import Checkpoint, Journal, JSONLines, LRSchedule, Steering
from camshaft.handlers.schedules import cosine, warmup


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on digits, to the end that the last change says."""
    parser = argparse.ArgumentParser(description="Train on digits, and be steered meanwhile.")
    parser.add_argument("--directory", type=Path, default=Path("runs/steering"))
    parser.add_argument("--max-epochs", type=int, default=40)
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between two looks")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    model = ranks.prepare(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    engine.add(
        LRSchedule(warmup(100).then(cosine(final=0.1))),
        Checkpoint(
            options.directory, when=Events.ITERATION_COMPLETED(every=130, last=True), resume=True
        ),
        Journal(options.directory, config=options),
        JSONLines(options.directory / "rows.jsonl", when=Events.ITERATION_COMPLETED(every=10)),
        Steering(options.directory, interval=options.interval),
    )
    batches = loader(data, 32, training=True)
    state = engine.run(batches, max_epochs=options.max_epochs, max_batches=options.max_batches)
    if ranks.rank() == 0:
        print(f"stopped in epoch {state.epoch}: {state.stop_reason}")


if __name__ == "__main__":
    main()

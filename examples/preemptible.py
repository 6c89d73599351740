"""Train on a machine that may be taken away: save and stop in time, go on when run again.

    python examples/preemptible.py    # press Ctrl-C at any time, and run it again

As a Slurm job that gets a signal a minute before its time is over, and is queued again:

    sbatch --time=12:00:00 --signal=USR1@60 --requeue --open-mode=append job.sh

    # job.sh
    srun python examples/preemptible.py --seconds 41400
    case $? in 75 | 130 | 138 | 143) scontrol requeue "$SLURM_JOB_ID" ;; esac

Exit codes:

    0                the run is over
    75               the time of --seconds is over: run it again
    130, 138, 143    SIGINT, SIGUSR1 or SIGTERM stopped the run, which is saved: run it again
    anything else    the run failed

A second signal kills the process; the next one then goes on from the checkpoint before.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset, random_split

from camshaft import Events, supervised
from camshaft.handlers import (
    Checkpoint,
    Journal,
    JSONLines,
    LRSchedule,
    StopAfter,
    StopOnSignal,
    Validate,
)

RUN_AGAIN = 75  # the exit code EX_TEMPFAIL: a temporary failure, try again


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, or carry on, until the run is over or interrupted; return the exit code."""
    parser = argparse.ArgumentParser(description="Train on digits, in as many parts as it takes.")
    parser.add_argument("--directory", type=Path, default=Path("runs/preemptible"))
    parser.add_argument("--max-epochs", type=int, default=20)
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of this process")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    train_set, val_set = random_split(data, [1440, len(data) - 1440])
    train_loader = DataLoader(train_set, 32, shuffle=True, num_workers=options.workers)
    val_loader = DataLoader(val_set, 128)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = CosineAnnealingLR(optimizer, options.max_epochs * len(train_loader))

    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    engine.add(
        LRSchedule(scheduler),
        Validate(val_loader),
        # Every 100 steps, in case the machine vanishes without a signal; and at the end.
        Checkpoint(
            options.directory, when=Events.STEP_COMPLETED(every=100, last=True), resume=True
        ),
        Journal(options.directory, config=options),
        JSONLines(
            options.directory / "rows.jsonl",
            when=Events.ITERATION_COMPLETED(every=5) | Events.EPOCH_COMPLETED,
        ),
        StopOnSignal(deadline=50),  # seconds, of the minute after the signal
        StopAfter(seconds=options.seconds),
    )
    state = engine.run(train_loader, max_epochs=options.max_epochs, max_batches=options.max_batches)
    print(f"stopped in epoch {state.epoch}: {state.stop_reason}")
    if state.is_interrupted:
        return RUN_AGAIN
    print(f"validation loss: {engine.evaluate(val_loader).metrics['loss']:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

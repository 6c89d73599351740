"""A training beside a mirror: train.py <directory> <address> [<epochs> [<seconds an iteration>]].

Prints "began" when it trains, and at the end the weights and the state of Python's generator.
"""

import hashlib
import logging
import os
import random
import sys
import time
from pathlib import Path

import torch
from torch import nn

from camshaft import Events, ranks, supervised
from camshaft.handlers import (
    Checkpoint,
    Journal,
    JSONLines,
    Mirror,
    StopOnSignal,
    TensorBoard,
    latest,
)


@ranks.process_group("gloo")
def main(directory, address, epochs="3", pause="0", wait="20", size="64", *more):
    logging.basicConfig(level=os.environ.get("LEVEL", "INFO"), format="%(message)s")
    torch.manual_seed(0)
    random.seed(0)
    width = int(size)
    model = nn.Sequential(nn.Linear(4, width), nn.Dropout(0.1), nn.Linear(width, 2))
    optimizer = torch.optim.Adam(model.parameters())
    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    inputs = torch.randn(40, 4)
    data = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
    engine.add(
        Mirror(address, interval=0.05, wait=float(wait)),
        Checkpoint(
            directory,
            when=Events.ITERATION_COMPLETED(every=2) | Events.EPOCH_COMPLETED(last=True),
            keep=latest(2),
            resume="new" not in more or None,
        ),
        JSONLines(Path(directory) / "rows.jsonl", when=Events.ITERATION_COMPLETED),
        TensorBoard(directory),
        Journal(directory),
        StopOnSignal(),
    )

    @engine.on(Events.ITERATION_COMPLETED)
    def go_slowly(state):
        state.metrics["drawn"] = random.random()
        time.sleep(float(pause))

    @engine.on(Events.STARTED)
    def tell(state):
        print("began", state.iteration, flush=True)

    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    engine.run(loader, max_epochs=int(epochs))
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    drawn = str((random.getstate(), torch.get_rng_state().tolist()))
    print(hashlib.sha256(weights.numpy().tobytes() + drawn.encode()).hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])

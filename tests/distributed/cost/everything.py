"""A run of DDP with every handler on: what is sent in each iteration, and what for."""

import sys
from pathlib import Path

import torch
from counter import Messages
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

sys.path.append(str(Path(__file__).parents[2] / "endurance"))
from every_handler import every_handler

from camshaft import Events, Stage, loader, supervised
from camshaft.handlers import Checkpoint, History

LENGTH = 40
START, REPORTS, VALIDATION, SIGNALS, SAVE, END = (0, 1), (10, 30), 15, (18, 36), 20, LENGTH
"""The iterations in which ranks ask one another something; the last one ends epoch and run."""
EACH = Events.ITERATION_COMPLETED


def everything(directory, size, saves=True):
    """An engine with every handler that has no other number of messages by its nature."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    rows = EACH(at=REPORTS)
    inputs = torch.linspace(-1, 1, 4 * 2 * size * LENGTH).reshape(-1, 4)
    data = TensorDataset(inputs, inputs[:, :3].argmax(1))
    validation = loader(TensorDataset(*data[: 8 * size]), 4 * size, training=False)
    handlers = every_handler(
        directory,
        rows=rows,
        validation=validation,
        validations=EACH(at=VALIDATION),
        signals=SIGNALS[0],
    )
    engine.add(*handlers, History(when=rows))
    if saves:
        engine.add(Checkpoint(directory / "run", when=EACH(at=SAVE)))
    return engine, loader(data, 2 * size, training=True)


def counted(engine, data, rank):
    """Run one epoch; the messages from the start of each iteration to that of the next."""
    messages = Messages(rank)

    @engine.on(Events.ITERATION_STARTED, stage=Stage.MEASURE)
    def note(state):
        messages.place = state.iteration

    with messages:
        engine.run(data, max_epochs=1)
    return messages

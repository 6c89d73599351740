"""A run of DDP with every handler on: what is sent in each iteration, and what for."""

from io import StringIO

import torch
from counter import Messages
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from camshaft import Events, Stage, loader, supervised
from camshaft.handlers import (
    CSV,
    EMA,
    Average,
    Checkpoint,
    ClipGradNorm,
    ConsoleLines,
    EarlyStopping,
    GarbageCollection,
    GradNorm,
    HangWatchdog,
    History,
    Journal,
    JSONLines,
    LRSchedule,
    Metrics,
    NonFiniteGuard,
    ProgressBar,
    RankLogs,
    SpikeGuard,
    StopAfter,
    StopOnSignal,
    SystemUse,
    TensorBoard,
    Throughput,
    TimeHandlers,
    Totals,
    Validate,
    WeightNorms,
)
from camshaft.handlers.schedules import cosine, warmup

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
    engine.add(
        ClipGradNorm(1.0),
        GradNorm(),
        NonFiniteGuard("skip"),
        SpikeGuard(),
        EMA(0.99),
        LRSchedule(warmup(2).then(cosine(final=0.5))),
        Metrics({"accuracy": MulticlassAccuracy(3)}),
        Average("loss", over=20, when=rows),
        Totals({"samples": lambda batch: len(batch[0])}, when=rows),
        Throughput(when=rows),
        SystemUse(when=rows),
        WeightNorms(when=rows),
        GarbageCollection(EACH(every=7)),
        Validate(validation, when=EACH(at=VALIDATION)),
        EarlyStopping("val/loss", patience=10**9, when=EACH(at=VALIDATION)),
        *([Checkpoint(directory / "run", when=EACH(at=SAVE))] if saves else []),
        JSONLines(directory / "rows.jsonl", when=rows),
        CSV(directory / "rows.csv", when=rows),
        TensorBoard(directory / "board", when=rows),
        History(when=rows),
        Journal(directory, interval=0.001),
        ConsoleLines("loss", when=rows, write=len),
        ProgressBar("loss", file=StringIO(), interval=0.001),
        RankLogs(directory / "ranks"),
        HangWatchdog(600),
        TimeHandlers(),
        StopOnSignal(every=SIGNALS[0]),
        StopAfter(seconds=10**6),
    )
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

"""Every handler that may stay in a run for long, as tests of endurance and of messages use them."""

from io import StringIO

from torchmetrics.classification import MulticlassAccuracy

from camshaft import Events
from camshaft.handlers import (
    CSV,
    EMA,
    Average,
    ClipGradNorm,
    ConsoleLines,
    EarlyStopping,
    GarbageCollection,
    GradNorm,
    HangWatchdog,
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

EACH = Events.ITERATION_COMPLETED


class Bar(StringIO):
    """A terminal that forgets."""

    def write(self, text):
        return len(text)


def every_handler(directory, *, rows, validation, validations, signals=None):
    """All of them but those that save.

    Args:
        directory: Where they write.
        rows: When numbers are reported.
        validation: The data that is validated on.
        validations: When that happens.
        signals: The number of iterations from one question about signals to the next.
    """
    return (
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
        GarbageCollection(EACH(every=30)),
        Validate(validation, name="val", when=validations, weights={"model": "ema"}),
        EarlyStopping("val/loss", patience=10**9, when=validations),
        JSONLines(directory / "rows.jsonl", when=rows),
        CSV(directory / "rows.csv", when=rows),
        TensorBoard(directory / "board", when=rows),
        Journal(directory, interval=0.001),
        ConsoleLines("loss", when=rows, write=len),
        ProgressBar("loss", file=Bar(), interval=0.001),
        RankLogs(directory / "ranks"),
        HangWatchdog(600),
        TimeHandlers(),
        StopOnSignal(every=signals, deadline=600),
        StopAfter(seconds=10**6),
    )

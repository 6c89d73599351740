"""What reports reads from the devices, and nothing else does."""

from collections import Counter
from io import StringIO
from typing import ClassVar

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics.classification import MulticlassAccuracy, MulticlassRecall

from camshaft import Events, supervised
from camshaft.engine.state import under_way
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
    Totals,
    Validate,
    WeightNorms,
)
from camshaft.handlers.schedules import cosine, warmup

READS = {"item", "__float__", "__int__", "__bool__", "__index__", "tolist", "cpu", "numpy"}
COPIES = {"__array__", "__contains__", "is_nonzero", "equal", "allclose"}
BELOW = ("_local_scalar_dense", "equal.default", "unique", "nonzero", "masked_select", "bincount")
"""Operations that wait for the device: they read a value, or their shape depends on values."""


class Counted(torch.Tensor):
    """A tensor that counts the reads of all tensors that were computed from it."""

    reads: ClassVar[Counter[str]] = Counter()

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        if (name := getattr(function, "__name__", "")) in READS | COPIES:
            Counted.reads[name] += 1
        return super().__torch_function__(function, types, arguments, keywords or {})


class Below(TorchDispatchMode):
    """Counts what the subclass cannot see: waiting below Python, of any tensor."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.reads += any(name in str(function) for name in BELOW)
        return function(*arguments, **(keywords or {}))


def error_of(prediction, target):
    return (prediction.argmax(1) != target).float().mean()


def labels(output):
    return output.prediction.argmax(1), output.target


def handlers(path, optimizer):
    often = Events.ITERATION_COMPLETED(every=50)
    return [
        Metrics({"accuracy": MulticlassAccuracy(3, average="micro"), "error": error_of}),
        # It checks all labels at first.
        Metrics({"recall": MulticlassRecall(3, average="micro")}, select=labels),
        Average("loss", over=50),
        Average("loss", decay=0.98),
        Average("loss"),
        ClipGradNorm(1.0),
        LRSchedule(CosineAnnealingLR(optimizer, 500)),
        JSONLines(path, when=often),
    ]


@pytest.mark.slow
def test_500_iterations_logged_every_50_read_10_times_and_once_at_the_end(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.cross_entropy)
    engine.add(*handlers(tmp_path / "rows.jsonl", optimizer))
    inputs = torch.randn(8, 4).as_subclass(Counted)
    batch = (inputs, torch.randint(3, (8,)).as_subclass(Counted))
    Counted.reads.clear()
    with Below() as below:
        state = engine.run([batch] * 500, max_iterations=500)
    assert isinstance(state.metrics["loss"], Counted)  # the losses did count
    # And once whether the first batch has one class alone: of targets that are no device's.
    assert Counted.reads.total() <= 12, Counted.reads
    assert below.reads <= 12, below.reads
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 11  # what the end measures


@pytest.mark.parametrize("read", [float, bool, torch.Tensor.item, torch.Tensor.tolist])
def test_the_count_sees_every_read(read):
    Counted.reads.clear()
    read(torch.ones(()).as_subclass(Counted))
    assert Counted.reads.total() >= 1


class Where(TorchDispatchMode):
    """Notes the iterations in which something waits for a device, whatever device it is.

    On the CPU nothing waits; the operations that would are the same.
    """

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        leaves = "_to_copy" in str(function) and keywords.get("device") is not None
        if leaves or any(name in str(function) for name in BELOW):
            state = under_way.get()
            while state is not None and state.parent is not None:
                state = state.parent  # an evaluation belongs to the iteration around it
            self.found.add((None if state is None else state.iteration, str(function)))
        return function(*arguments, **keywords)


REPORTS = 20


def with_everything(directory, device="cpu"):
    """An engine with all handlers at their defaults, which reports every 20 iterations."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.BatchNorm1d(8)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(8, 3)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    loss_fn = torch.nn.functional.cross_entropy
    engine = supervised(model, optimizer, loss_fn, accumulate=2)
    often = Events.ITERATION_COMPLETED(every=REPORTS)
    batches = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(4)]
    batches = [(inputs.to(device), targets.to(device)) for inputs, targets in batches]
    engine.add(
        ClipGradNorm(1.0),
        GradNorm(name="before"),
        NonFiniteGuard(every=REPORTS // 2),  # of windows, each of two batches
        EMA(0.99),
        LRSchedule(warmup(2).then(cosine(final=0.5))),
        # Means over classes wait for the device: torchmetrics counts them by torch.bincount.
        Metrics({"accuracy": MulticlassAccuracy(3, average="micro"), "error": error_of}),
        Average("loss", over=20),
        Average("loss", decay=0.9),
        Totals({"samples": lambda batch: len(batch[0])}),
        Throughput(when=often),
        SystemUse(when=often),
        WeightNorms(when=often),
        GarbageCollection(often),
        Validate(batches[:2], name="val", when=often),
        EarlyStopping("val/loss", patience=10**9, when=often),
        Checkpoint(directory, when=often),
        JSONLines(directory / "rows.jsonl", when=often),
        CSV(directory / "rows.csv", when=often),
        TensorBoard(directory / "board", when=often),
        Journal(directory),
        ConsoleLines("loss", when=often, write=len),
        ProgressBar("loss", file=StringIO(), interval=1e9),
        RankLogs(directory / "ranks"),
        HangWatchdog(600),
        StopOnSignal(),
        StopAfter(seconds=10**6),
    )
    return engine, batches * (5 * REPORTS // 4)


def test_with_everything_on_nothing_waits_between_two_reports(tmp_path):
    engine, batches = with_everything(tmp_path / "run")
    with Where() as where:
        engine.run(batches, max_epochs=1)
    reports = {iteration for iteration, _ in where.found}
    assert reports >= {REPORTS, 2 * REPORTS}  # they are seen
    # Before the first one, the first batch's labels are checked, and EMA looks at the buffers once.
    between = {each for each in where.found if each[0] and each[0] > REPORTS and each[0] % REPORTS}
    assert between == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "guard",
    [NonFiniteGuard("skip"), NonFiniteGuard("retry"), SpikeGuard()],
    ids=["skip", "retry", "spike"],
)
def test_guards_that_decide_on_each_step_are_seen_to_wait(tmp_path, guard):
    engine, batches = with_everything(tmp_path / "run")
    engine.add(guard)
    with Where() as where:
        engine.run(batches, max_iterations=2 * REPORTS)
    assert {2 * REPORTS - 2} <= {iteration for iteration, _ in where.found}


@pytest.mark.parametrize(
    ("average", "is_deterministic", "waits"),
    [("macro", False, 1), ("macro", True, 0), ("micro", False, 0)],
)
def test_a_mean_over_classes_waits_as_the_guide_says(average, is_deterministic, waits):
    accuracy = MulticlassAccuracy(3, average=average, validate_args=False)
    torch.use_deterministic_algorithms(is_deterministic)
    try:
        with Below() as below:
            accuracy.update(torch.randn(8, 3), torch.randint(3, (8,)))
    finally:
        torch.use_deterministic_algorithms(False)
    assert below.reads == waits


@pytest.mark.gpu
def test_on_a_gpu_nothing_waits_between_two_reports(tmp_path):
    engine, batches = with_everything(tmp_path / "run", "cuda")
    engine.on(Events.ITERATION_STARTED)(
        lambda state: torch.cuda.set_sync_debug_mode(
            "error" if state.iteration > REPORTS and state.iteration % REPORTS else "default"
        )
    )
    engine.on(Events.ITERATION_COMPLETED)(lambda state: torch.cuda.set_sync_debug_mode("default"))
    try:
        engine.run(batches, max_epochs=1)
    finally:
        torch.cuda.set_sync_debug_mode("default")

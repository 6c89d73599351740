"""What reports reads from the devices, and nothing else does."""

from collections import Counter
from typing import ClassVar

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics.classification import MulticlassAccuracy, MulticlassRecall

from camshaft import Events, supervised
from camshaft.handlers import Average, ClipGradNorm, JSONLines, LRSchedule, Metrics

READS = {"item", "__float__", "__int__", "__bool__", "__index__", "tolist", "cpu", "numpy"}
COPIES = {"__array__", "__contains__", "is_nonzero", "equal", "allclose"}
BELOW = ("_local_scalar_dense", "equal.default", "unique", "nonzero", "masked_select")
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
    often = Events.ITERATION_COMPLETED(every=100)
    return [
        Metrics({"accuracy": MulticlassAccuracy(3), "error": error_of}),
        Metrics({"recall": MulticlassRecall(3)}, select=labels),  # which checks all labels at first
        Average("loss", over=100),
        Average("loss", decay=0.98),
        Average("loss"),
        ClipGradNorm(1.0),
        LRSchedule(CosineAnnealingLR(optimizer, 1000)),
        JSONLines(path, when=often),
    ]


def test_1000_iterations_logged_every_100_read_10_times_and_once_at_the_end(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.cross_entropy)
    engine.add(*handlers(tmp_path / "rows.jsonl", optimizer))
    inputs = torch.randn(8, 4).as_subclass(Counted)
    batch = (inputs, torch.randint(3, (8,)).as_subclass(Counted))
    Counted.reads.clear()
    with Below() as below:
        state = engine.run([batch] * 1000, max_iterations=1000)
    assert isinstance(state.metrics["loss"], Counted)  # the losses did count
    assert Counted.reads.total() <= 11, Counted.reads
    assert below.reads <= 11, below.reads
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 11  # what the end measures


@pytest.mark.parametrize("read", [float, bool, torch.Tensor.item, torch.Tensor.tolist])
def test_the_count_sees_every_read(read):
    Counted.reads.clear()
    read(torch.ones(()).as_subclass(Counted))
    assert Counted.reads.total() >= 1

"""Where the host waits for the device. On the CPU: tests/test_host_reads.py counts the reads."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from camshaft import Events, Stage, count_tokens, supervised
from camshaft.engine.modules import moved
from camshaft.engine.update import norm_of
from camshaft.handlers import (
    EMA,
    Average,
    ClipGradNorm,
    JSONLines,
    LRSchedule,
    Metrics,
    NonFiniteGuard,
    SystemUse,
    Throughput,
)
from camshaft.handlers.schedules import cosine

pytestmark = pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
OFTEN = Events.ITERATION_COMPLETED(every=50)


def everything(path):
    return [
        *(ClipGradNorm(1.0), LRSchedule(cosine()), EMA(0.9), Average("loss", over=20)),
        *(Average("loss", decay=0.9, skip_nan=True), NonFiniteGuard("raise")),
        *(Metrics({"accuracy": MulticlassAccuracy(4)}), Throughput(when=OFTEN)),
        *(SystemUse(when=OFTEN), JSONLines(path, when=OFTEN)),
    ]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_between_two_reports_the_host_never_waits(tmp_path, precision):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.cuda().parameters(), lr=1e-3, fused=True)
    loss_fn = nn.CrossEntropyLoss(reduction="sum")
    engine = supervised(
        model, optimizer, loss_fn, weight=count_tokens, precision=precision, accumulate=2
    )
    watched = []

    @engine.on(Events.ITERATION_STARTED, stage=Stage.MEASURE)
    def watch(state):
        place = state.iteration % 50
        if state.iteration > 50 and place == 1:  # the first reports have warmed everything up
            torch.cuda.set_sync_debug_mode("error")
        elif place == 0:  # the iteration at hand reports
            torch.cuda.set_sync_debug_mode("default")
        watched.append(torch.cuda.get_sync_debug_mode())

    engine.add(*everything(tmp_path / "rows.jsonl"))
    data = TensorDataset(torch.randn(1600, 16), torch.randint(4, (1600,)))
    loader = DataLoader(data, 8, shuffle=True, pin_memory=True)
    try:
        engine.run(loader, max_epochs=1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert sum(watched) == 2 * 3 * 49  # "error" is 2
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) >= 4


@pytest.mark.slow
def test_what_the_host_reads_is_copied_to_it_with_a_wait():
    """A copy to the CPU without one holds nothing yet: gradients there, and the loss on a GPU."""
    copies = []

    class Copies(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            if function is torch.ops.aten._to_copy.default and keywords.get("device") is not None:
                copies.append((str(keywords["device"]), bool(keywords.get("non_blocking"))))
            return function(*arguments, **(keywords or {}))

    with FakeTensorMode(), Copies():
        there = torch.ones(2, device="cuda:0")
        norm_of([torch.ones(2), there])
        moved(there, "cpu")
        torch.ones(2).to("cuda:0", non_blocking=True)
    assert copies == [("cpu", False), ("cpu", False), ("cuda:0", True)]

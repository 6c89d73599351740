"""A metric that is a sharded tensor would be another number on each rank."""

import pytest

SCRIPT = """
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from camshaft import Engine, ranks
from camshaft.handlers import EarlyStopping, History

with ranks.process_group("gloo"):
    values = distribute_tensor(torch.arange(4.0), init_device_mesh("cpu", (2,)), [Shard(0)])

    def step(state, batch):
        state.metrics["total"] = values.sum()

    engine = Engine(step)
    engine.add(HANDLER)
    engine.run([1], max_epochs=1)
"""


@pytest.mark.quick(handler=1)
@pytest.mark.parametrize("handler", ["History()", "EarlyStopping('total', mode='min', patience=1)"])
def test_a_sharded_metric_is_an_error_that_says_what_to_write(processes, handler):
    first, _ = processes.run_ranks(2, SCRIPT.replace("HANDLER", handler), code=None)
    assert "write state.metrics[name] = value.full_tensor(), on all ranks" in first.stderr


SHARDED_LOSS = """
import sys
import torch, torch.nn.functional as F
from torch.distributed.tensor import Shard, distribute_module, distribute_tensor, init_device_mesh
from camshaft import ranks, supervised

LOSSES = {
    "mean": F.mse_loss,
    "sum": lambda x, y: F.mse_loss(x, y, reduction="sum"),
    "none": lambda x, y: F.mse_loss(x, y, reduction="none").mean(),
}
with ranks.process_group("gloo", timeout=60):
    mesh = init_device_mesh("cpu", (2,))
    ranks.data_parallel(None)
    torch.manual_seed(0)
    pair = [distribute_tensor(torch.rand(4, 3), mesh, [Shard(0)]) for _ in range(2)]
    net = distribute_module(torch.nn.Linear(3, 3), mesh)
    engine = supervised(net, torch.optim.SGD(net.parameters(), 0.1), LOSSES[sys.argv[1]])
    engine.run([tuple(pair)], max_epochs=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("reduction", "tells"), [("mean", True), ("sum", False), ("none", False)])
def test_a_loss_of_shards_whose_gradient_is_too_large_is_told_of(reduction, tells, processes):
    for each in processes.run_ranks(2, SHARDED_LOSS, reduction):
        assert ("torch takes MseLoss of each rank's shard by itself" in each.stderr) is tells

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

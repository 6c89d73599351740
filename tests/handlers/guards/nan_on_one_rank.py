"""Run under torchrun: NaN in the data of rank 1 in its third batch."""

import sys

import ignite.distributed as idist
import torch
from torch.nn.functional import mse_loss

from camshaft import supervised
from camshaft.handlers import NonFiniteGuard

idist.initialize("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=sys.argv[1] == "fused")
data = [(torch.ones(4, 2), torch.ones(4, 1)) for _ in range(5)]
if idist.get_rank() == 1:
    data[2][0][0, 0] = float("nan")
engine = supervised(model, optimizer, mse_loss)
try:
    engine.add(NonFiniteGuard("raise")).run(data, max_epochs=1)
finally:
    finite = all(bool(each.isfinite().all()) for each in model.parameters())
    print(f"rank {idist.get_rank()}: weights are finite: {finite}", flush=True)

"""Run under torchrun: seed each rank, and write down what it draws and which samples it reads."""

import json
import sys
from pathlib import Path

import ignite.distributed as idist
import torch
from torch.utils.data import DataLoader, DistributedSampler

from camshaft import Engine, seed_everything

idist.initialize("gloo")
rank = idist.get_rank()
drawn = {}
for per_rank in (False, True):
    seed_everything(7, per_rank=per_rank)
    drawn[str(per_rank)] = torch.rand(3).tolist()
loader = DataLoader(range(10), 2, sampler=DistributedSampler(range(10)))
samples = []
Engine(lambda state, batch: samples.extend(batch.tolist())).run(loader, max_epochs=2)
result = {"drawn": drawn, "epochs": [samples[:5], samples[5:]]}
(Path(sys.argv[1]) / f"rank-{rank}.json").write_text(json.dumps(result))
idist.finalize()

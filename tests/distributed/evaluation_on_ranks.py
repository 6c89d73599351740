"""Run under torchrun, or alone: evaluate 499 samples, then train, and write what each rank saw."""

import hashlib
import json
import sys
from pathlib import Path

import ignite.distributed as idist
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from camshaft import ranks, supervised
from camshaft.handlers import EMA, SWA, Checkpoint, Collect, Metrics, RestoreBest, Validate

directory, alone = Path(sys.argv[1]), len(sys.argv) > 2
if not alone:
    idist.initialize("gloo")
rank, count = ranks.rank(), ranks.world_size()
torch.manual_seed(0)
inputs = torch.randn(499, 4, dtype=torch.float64)
data = TensorDataset(inputs, torch.randint(3, (499,)), torch.arange(499))


def loader(batch_size=83, shuffle=False):
    sampler = DistributedSampler(data, count, rank, shuffle=shuffle)
    return DataLoader(data, batch_size, sampler=sampler)


model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()
wrapped = model if alone else DistributedDataParallel(model)
engine = supervised(
    wrapped,
    torch.optim.SGD(model.parameters(), 0.1),
    lambda prediction, target: nn.functional.cross_entropy(prediction, target[:, 0]),
    prepare_batch=lambda batch: (batch[0], torch.stack(batch[1:], 1)),
)
engine.add(
    Metrics(
        {"accuracy": MulticlassAccuracy(3, average="micro")}, select=lambda o: (o[1], o[2][:, 0])
    ),
    Collect("numbers", select=lambda output: (output.target[:, 1], output.target[:, 1].tolist())),
)
state = engine.evaluate(loader())
numbers, listed = state.collected["numbers"]
result = {
    "accuracy": state.metrics["accuracy"].item(),
    "loss": state.metrics["loss"].item(),
    "in order": numbers.tolist() == listed == list(range(499)),
}


def digest(module):
    # Running statistics are each rank's own, as DDP leaves them after a step; rank 0's are saved.
    parts = [each.detach().numpy().tobytes() for each in module.parameters()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


engine.add(
    EMA(0.9),
    SWA(),
    Validate(loader(), name="val"),
    Validate(loader(), name="ema", weights="ema"),
    Validate(loader(), name="swa", weights="swa"),
    RestoreBest("ema/loss", weights="ema"),
    Checkpoint(directory / f"run-{count}", resume=True),
)
state = engine.run(loader(50, shuffle=True), max_epochs=2)
result["objects"] = {name: digest(engine.objects[name]) for name in ("model", "ema", "swa", "best")}
result["metrics"] = {name: float(value) for name, value in state.metrics.items() if "/" in name}
(directory / f"{count}-{rank}.json").write_text(json.dumps(result))
if not alone:
    idist.barrier()
    del engine, wrapped  # gloo's threads abort if DDP outlives the group
    idist.finalize()

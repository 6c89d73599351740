"""Run on two ranks: find a rate, a batch size, and prune a trial that only rank 0 has."""

import json
import sys
from copy import deepcopy
from datetime import timedelta
from pathlib import Path

import ignite.distributed as idist
import optuna
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from camshaft import Events, ranks, supervised
from camshaft.handlers import OptunaPruning, find_batch_size, find_lr

idist.initialize("gloo", timeout=timedelta(seconds=60))
optuna.logging.set_verbosity(optuna.logging.WARNING)
rank = ranks.rank()


class Room(nn.Module):
    """Has less room on rank 1, and fails there after the ranks have exchanged buffers."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 1), nn.BatchNorm1d(3)

    def forward(self, x):
        if len(x) > 100 - 30 * rank:
            raise torch.OutOfMemoryError("no room")
        return self.layer(self.norm(x))


def build(module, **arguments):
    torch.manual_seed(0)
    model = DistributedDataParallel(module)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return supervised(model, optimizer, nn.functional.mse_loss, **arguments)


torch.manual_seed(rank)
data = [(torch.randn(8, 3), torch.randn(8, 1)) for _ in range(4)]
engine = build(Room(), accumulate=2)
before = [each.tolist() for each in engine.objects["model"].state_dict().values()]
samples = TensorDataset(torch.randn(300, 3), torch.randn(300, 1))
# The first size that is tried fits on both ranks, or on rank 0 alone.
sizes = [find_batch_size(engine, samples, start=start) for start in (2, 80)]
model = deepcopy(engine.objects["model"])
own = [nn.functional.mse_loss(model(inputs), targets).item() for inputs, targets in data[:2]]
curve = find_lr(engine, data, steps=20)
try:
    synced = nn.SyncBatchNorm(3)
    optimizer = torch.optim.SGD(synced.parameters(), lr=0.1)
    with_sync = find_batch_size(
        supervised(synced, optimizer, nn.functional.mse_loss), TensorDataset(*data[0])
    )
except ValueError as error:
    with_sync = str(error)
after = [each.tolist() for each in engine.objects["model"].state_dict().values()]
trained = engine.run(data, max_epochs=1)


class PruneAtOnce(optuna.pruners.BasePruner):
    def prune(self, study, trial):
        return trial.last_step >= 2


study = optuna.create_study(pruner=PruneAtOnce())
trial = study.ask() if rank == 0 else None
sweep = build(nn.Linear(3, 1)).add(OptunaPruning(trial, metric="loss"))
epochs = []
sweep.on(Events.EPOCH_COMPLETED)(lambda state: epochs.append(state.epoch))
try:
    sweep.run(data, max_epochs=5)
    pruned = ""
except optuna.TrialPruned as error:
    pruned = str(error)
result = {
    "sizes": sizes,
    "rates": curve.rates,
    "losses": curve.losses,
    "own": sum(own) / 2,  # of the first window
    "same": before == after,
    "trained": trained.metrics["loss"].item(),
    "weights": [each.tolist() for each in engine.objects["model"].parameters()],
    "with sync": with_sync,
    "pruned": pruned,
    "epochs": epochs,
    "reported": sorted(study.trials[0].intermediate_values) if trial else None,
}
Path(sys.argv[1], f"rank-{rank}.json").write_text(json.dumps(result))

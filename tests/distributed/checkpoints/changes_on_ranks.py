"""Two ranks whose function changes a setting once are left, in its epoch or later, and go on."""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from camshaft import Events, Update, ranks, supervised
from camshaft.handlers import Checkpoint

X = torch.randn(48, 3, generator=torch.Generator().manual_seed(1))


class Rows(Dataset):
    level = 0

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return X[index] * (1 + 0.1 * self.level), X[index, :1]


CHANGES = {
    "eval": lambda model, update, loss, data: model[1].eval(),
    "dropout": lambda model, update, loss, data: setattr(model[2], "p", 0.5),
    "loss": lambda model, update, loss, data: setattr(loss, "delta", 0.1),
    "level": lambda model, update, loss, data: setattr(data, "level", 2),
    "accumulate": lambda model, update, loss, data: setattr(update, "accumulate", 2),
    "own": lambda model, update, loss, data: setattr(data, "level", ranks.rank()),
}


def script(change, directory, when, **limits):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    wrapped = DistributedDataParallel(model)
    update, loss, data = Update(optimizer, model=wrapped), nn.HuberLoss(), Rows()
    engine = supervised(wrapped, update, loss)
    engine.add(Checkpoint(directory, when=Events.ITERATION_COMPLETED(every=2), resume=True))
    engine.on(when)(lambda state: CHANGES[change](model, update, loss, data))
    loader = DataLoader(data, 4, sampler=DistributedSampler(data))
    engine.run(loader, max_epochs=3, **limits)
    return [each.tolist() for each in model.state_dict().values()]


with ranks.process_group("gloo"):
    found = {}
    for change in CHANGES:
        when = Events.EPOCH_STARTED(at=2)
        home = Path(sys.argv[1]) / change
        whole = script(change, home / "whole", when)
        for left in (8, 14):
            script(change, home / str(left), when, max_iterations=left)
            found[f"{change} {left}"] = script(change, home / str(left), when) == whole
    print(json.dumps(found))

"""Two ranks are left and go on, the second of them with another number of threads."""

import sys

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from camshaft import Update, ranks, supervised
from camshaft.handlers import Checkpoint

with ranks.process_group("gloo"):
    for epochs in (1, 2):
        torch.set_num_threads(1 + ranks.rank() * (epochs - 1))
        model = DistributedDataParallel(nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine = supervised(model, Update(optimizer, model=model), nn.functional.mse_loss)
        engine.add(Checkpoint(sys.argv[1], resume=True))
        engine.run([(torch.ones(4, 2), torch.zeros(4, 1))], max_epochs=epochs)

"""A model sharded over ranks beside a mirror: sharded.py <directory> <address> <epochs>.

Prints the weights before and after the training, put together.
"""

import hashlib
import sys

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from camshaft import Events, ranks, supervised
from camshaft.handlers import Checkpoint, Mirror


def digest(model):
    tensors = [each.full_tensor().detach().flatten() for each in model.parameters()]
    return hashlib.sha256(torch.cat(tensors).numpy().tobytes()).hexdigest()


@ranks.process_group("gloo")
def main(directory, address, epochs):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 2)).double()
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters())
    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    engine.add(Mirror(address, interval=0.05), Checkpoint(directory, resume=True))
    inputs = torch.randn(16, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
    sampler = torch.utils.data.DistributedSampler(data, ranks.world_size(), ranks.rank())
    loader = torch.utils.data.DataLoader(data, 8 // ranks.world_size(), sampler=sampler)

    @engine.on(Events.STARTED)
    def tell(state):
        print(state.iteration, digest(model), flush=True)

    engine.run(loader, max_epochs=int(epochs))
    print(digest(model))


main(*sys.argv[1:])

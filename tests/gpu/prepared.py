"""A script with `ranks.prepare`: it says on which device it has trained, and what came out."""

import json
import sys

import torch
from torch import nn

from camshaft import loader, ranks, supervised


def main(kind):
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    model = ranks.prepare(net, shard="*", device="cpu" if kind == "cpu" else None)
    data = torch.utils.data.TensorDataset(torch.randn(40, 16), torch.randint(4, (40,)))
    optimizer = torch.optim.AdamW(model.parameters())
    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    engine.run(loader(data, 8, training=True), max_epochs=2)
    weights = {str(each.device): each.tolist() for each in model.parameters()}
    print(json.dumps([ranks.is_distributed(), *weights.items()]))


if __name__ == "__main__":
    main(sys.argv[1])

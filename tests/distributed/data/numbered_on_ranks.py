"""Ranks that number the labels of one data set otherwise, as by the order of a set, or alike."""

import sys

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from camshaft import Update, ranks, supervised


class Labels(Dataset):
    read = 0

    def __init__(self, shift):
        self.shift, self.total = shift, {"read": 0}

    def __len__(self):
        return 16

    def __getitem__(self, index):
        self.read += 1
        self.total["read"] += 1
        return torch.rand(3) + index, (index + self.shift) % 4


def train(data, workers):
    model = DistributedDataParallel(nn.Linear(3, 4))
    update = Update(torch.optim.SGD(model.parameters(), lr=0.01), model=model)
    engine = supervised(model, update, nn.functional.cross_entropy)
    samples = DataLoader(data, 4, sampler=DistributedSampler(data), num_workers=workers)
    state = engine.run(samples, max_epochs=1)
    total = data.total["read"]
    engine.run(samples, max_epochs=2, state=state)
    assert data.total["read"] == (0 if workers else total + 8)  # a later run compares nothing


with ranks.process_group("gloo"):
    for workers in (0, 2):
        print("alike", workers, file=sys.stderr)
        train(data := Labels(0), workers)
        assert data.read == (0 if workers else 16)  # as many as without the comparison
        print("otherwise", workers, file=sys.stderr)
        train(Labels(ranks.rank()), workers)

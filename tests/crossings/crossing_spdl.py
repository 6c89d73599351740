"""spdl: pipelines of threads."""

import torch
from crossing import digits, exact, trained_on
from spdl.dataloader import DataLoader


def with_noise(sample):
    features, label = sample
    return features + torch.randn(8) / 10, label


class Order:
    """Indices in another order for each pass."""

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.epoch)
        return iter(torch.randperm(44, generator=generator).tolist())


@exact(
    "spdl", "Data", "DataLoader(order, preprocessor=data.__getitem__, output_order='input', ...)"
)
def test_threads(folder):
    """Spdl's DataLoader with two threads, in the order of its source."""
    collate = torch.utils.data.default_collate
    options = {"aggregator": collate, "num_threads": 2, "output_order": "input"}
    loader = DataLoader(Order(), preprocessor=digits().__getitem__, batch_size=4, **options)
    return trained_on(loader)

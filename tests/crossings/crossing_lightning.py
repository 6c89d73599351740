"""lightning: loaders that are read together."""

import torch
from crossing import digits, exact, network, trained_with
from lightning.pytorch.utilities import CombinedLoader
from torch import nn


@exact("lightning", "Data", "combined = CombinedLoader(loaders, 'max_size_cycle'); iter(combined)")
def test_combined(folder):
    """CombinedLoader of two loaders; iter() lets it know its length."""
    torch.manual_seed(0)
    halves = torch.utils.data.random_split(digits(66), [44, 22])
    loaders = [torch.utils.data.DataLoader(half, 4, shuffle=True) for half in halves]
    combined = CombinedLoader(
        dict(zip(("labeled", "other"), loaders, strict=True)), "max_size_cycle"
    )
    iter(combined)
    model = network()

    def loss_of(batch):
        batch = batch[0] if isinstance(batch, tuple) else batch
        features, labels = batch["labeled"]
        other, _ = batch["other"]
        return nn.functional.cross_entropy(model(features), labels) + model(other).square().mean()

    return trained_with(model, loss_of, combined)

"""bitsandbytes: optimizers whose moments have eight bits."""

import torch
from crossing import exact, trained_by
from torch import nn


def wide():
    """A tensor has moments of eight bits from 4096 elements on."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    )


@exact("bitsandbytes", "Optimizers", "supervised(model, AdamW8bit(model.parameters()), loss)")
def test_adamw_8bit(folder):
    """AdamW8bit, which steps on a CPU, too."""
    from bitsandbytes.optim import AdamW8bit

    return trained_by(lambda model: AdamW8bit(model.parameters(), lr=0.01), wide)


@exact("bitsandbytes", "Optimizers", "supervised(model, Lion8bit(model.parameters()), loss)")
def test_lion_8bit(folder):
    """Lion8bit."""
    from bitsandbytes.optim import Lion8bit

    return trained_by(lambda model: Lion8bit(model.parameters(), lr=0.01), wide)

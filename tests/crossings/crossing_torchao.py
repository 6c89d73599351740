"""torchao: optimizers whose moments have few bits."""

import torch
from crossing import exact, trained_by
from torch import nn


def wide():
    """A tensor has moments of few bits from 4096 elements on."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    )


@exact("torchao", "Optimizers", "supervised(model, AdamW8bit(model.parameters()), loss)")
def test_adamw_8bit(folder):
    """AdamW8bit."""
    from torchao.optim import AdamW8bit

    return trained_by(lambda model: AdamW8bit(model.parameters(), lr=0.01), wide)


@exact("torchao", "Optimizers", "supervised(model, AdamW4bit(model.parameters()), loss)")
def test_adamw_4bit(folder):
    """AdamW4bit with stochastic rounding of bfloat16 weights."""
    from torchao.optim import AdamW4bit

    return trained_by(lambda model: AdamW4bit(model.parameters(), lr=0.01), wide)

"""mup: rates that follow the width of a layer."""

import torch
from crossing import exact, trained_by
from torch import nn


def wide(width=64):
    from mup import MuReadout

    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), MuReadout(width, 4))


def shaped():
    from mup import set_base_shapes

    torch.manual_seed(0)
    model = wide()
    return set_base_shapes(model, wide(8), delta=wide(16))


@exact("mup", "Optimizers", "supervised(model, MuAdamW(model.parameters()), loss)")
def test_muadamw(folder):
    """MuAdamW over a model with base shapes."""
    from mup import MuAdamW

    return trained_by(lambda model: MuAdamW(model.parameters(), lr=0.01), shaped)

"""torchdiffeq: neural ordinary differential equations."""

import torch
from crossing import adam, exact, held_out, trained_by
from torch import nn

from camshaft.handlers import EMA


@exact("torchdiffeq", "Models", "odeint_adjoint(field, x, times)  # in the model")
def test_adjoint(folder):
    """odeint_adjoint, whose gradients come of a second equation."""
    from torchdiffeq import odeint_adjoint

    class Field(nn.Sequential):
        def forward(self, t, x):
            return super().forward(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.field = Field(nn.Linear(8, 8), nn.Tanh())
            self.head = nn.Linear(8, 4)

        def forward(self, x):
            return self.head(odeint_adjoint(self.field, x, torch.linspace(0, 1, 2))[-1])

    def model():
        torch.manual_seed(0)
        return Model()

    return trained_by(adam, model, EMA(0.9), held_out())

"""torchsde: neural stochastic differential equations."""

import torch
from crossing import adam, exact, held_out, trained_by
from torch import nn


@exact("torchsde", "Models", "sdeint(equation, x, times, dt=0.2)  # in the model")
def test_sdeint(folder):
    """sdeint, whose Brownian motion takes its seed from NumPy."""
    from torchsde import sdeint

    class Equation(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.drift, self.noise, self.head = (nn.Linear(8, n) for n in (8, 8, 4))

        def f(self, t, x):
            return self.drift(x).tanh()

        def g(self, t, x):
            return self.noise(x).sigmoid()

        def forward(self, x):
            return self.head(sdeint(self, x, torch.linspace(0, 1, 2), dt=0.2)[-1])

    def model():
        torch.manual_seed(0)
        return Equation()

    return trained_by(adam, model, held_out(), by_hand=None)

"""e3nn: layers whose code is made as the model is."""

import torch
from crossing import adam, exact, held_out, trained_by
from torch import nn

from camshaft.handlers import EMA


@exact("e3nn", "Models", "supervised(model, optimizer, loss)")
def test_tensor_product(folder):
    """FullyConnectedTensorProduct, Linear and BatchNorm of irreducible representations."""
    from e3nn import o3
    from e3nn.nn import BatchNorm

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            inside = o3.Irreps("4x0e + 2x1o")
            self.first = o3.Linear("2x0e + 2x1o", inside)
            self.norm = BatchNorm(inside)
            self.product = o3.FullyConnectedTensorProduct(inside, inside, "4x0e")

        def forward(self, features):
            inside = self.norm(self.first(features))
            return self.product(inside, inside)

    def model():
        torch.manual_seed(0)
        return Model()

    return trained_by(adam, model, EMA(0.9), held_out())

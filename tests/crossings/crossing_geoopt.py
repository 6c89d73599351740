"""geoopt: parameters on manifolds."""

import torch
from crossing import exact, held_out, trained_by
from torch import nn


def curved():
    import geoopt

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            rows = torch.linalg.qr(torch.randn(8, 8)).Q
            self.turn = geoopt.ManifoldParameter(rows, manifold=geoopt.Stiefel())
            self.center = geoopt.ManifoldParameter(torch.randn(8), manifold=geoopt.Sphere())
            with torch.no_grad():
                self.center.proj_()
            self.head = nn.Linear(8, 4)

        def forward(self, features):
            return self.head((features @ self.turn).tanh() + self.center)

    torch.manual_seed(0)
    return Model()


@exact("geoopt", "Optimizers", "supervised(model, RiemannianAdam(model.parameters()), loss)")
def test_adam(folder):
    """RiemannianAdam, which is stabilized each four steps."""
    from geoopt.optim import RiemannianAdam

    def optimizer(model):
        return RiemannianAdam(model.parameters(), lr=0.01, stabilize=4, amsgrad=True)

    return trained_by(optimizer, curved, held_out())


@exact("geoopt", "Optimizers", "supervised(model, RiemannianSGD(model.parameters(), 0.1), loss)")
def test_sgd(folder):
    """RiemannianSGD with momentum."""
    from geoopt.optim import RiemannianSGD

    def optimizer(model):
        return RiemannianSGD(model.parameters(), lr=0.1, momentum=0.9, stabilize=4)

    return trained_by(optimizer, curved, held_out())

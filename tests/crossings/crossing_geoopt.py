"""geoopt: parameters on manifolds."""

import torch
from crossing import exact, held_out, told, trained_by
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


@told(
    "geoopt",
    "Optimizers",
    "the subclass of the row with its own __setstate__",
    match="RiemannianAdam",
)
def test_adam(folder):
    """RiemannianAdam as it is, whose count of steps is a number and becomes a tensor by a load."""
    from geoopt.optim import RiemannianAdam

    return trained_by(lambda model: RiemannianAdam(model.parameters(), lr=0.01), curved)


@exact(
    "geoopt",
    "Optimizers",
    "class Adam(RiemannianAdam): __setstate__ = torch.optim.Optimizer.__setstate__",
)
def test_adam_with_a_count(folder):
    """RiemannianAdam whose count of steps stays a number, stabilized each four steps."""
    from geoopt.optim import RiemannianAdam

    class Adam(RiemannianAdam):
        __setstate__ = torch.optim.Optimizer.__setstate__

    def optimizer(model):
        return Adam(model.parameters(), lr=0.01, stabilize=4, amsgrad=True)

    return trained_by(optimizer, curved, held_out())


@exact("geoopt", "Optimizers", "supervised(model, RiemannianSGD(model.parameters(), 0.1), loss)")
def test_sgd(folder):
    """RiemannianSGD with momentum."""
    from geoopt.optim import RiemannianSGD

    def optimizer(model):
        return RiemannianSGD(model.parameters(), lr=0.1, momentum=0.9, stabilize=4)

    return trained_by(optimizer, curved, held_out())

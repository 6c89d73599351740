"""gpytorch: Gaussian processes."""

import torch
from crossing import Trial, adam, exact
from torch import nn

from camshaft import Engine, Update


@exact("gpytorch", "Models", 'objects={"model": model, "likelihood": likelihood, ...}')
def test_variational(folder):
    """A variational Gaussian process, which takes its first values from the first batch."""
    import gpytorch
    from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

    class Process(gpytorch.models.ApproximateGP):
        def __init__(self, points):
            distribution = CholeskyVariationalDistribution(len(points))
            super().__init__(VariationalStrategy(self, points, distribution))
            self.mean = gpytorch.means.ConstantMean()
            self.covariance = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

    torch.manual_seed(0)
    x = torch.randn(44, 2)
    data = torch.utils.data.TensorDataset(x, x.sin().sum(1))
    model, likelihood = Process(x[:6].clone()), gpytorch.likelihoods.GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=44)
    update = Update(adam(nn.ModuleList([model, likelihood])))

    def step(state, batch):
        x, y = batch
        loss = -bound(model(x), y)
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    objects = {"model": model, "likelihood": likelihood, "optimizer": update.optimizer}
    engine = Engine(step, update, objects=objects)
    return Trial(engine, torch.utils.data.DataLoader(data, 4, shuffle=True))

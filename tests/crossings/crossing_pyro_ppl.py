"""pyro-ppl: stochastic variational inference."""

import torch
from crossing import Trial, adam, digits, exact
from torch import nn

from camshaft import Engine, Update


def bayesian():
    """A Bayesian layer, its guide, and a bound."""
    import pyro
    import pyro.distributions as dist
    from pyro.infer import Trace_ELBO
    from pyro.infer.autoguide import AutoDiagonalNormal
    from pyro.nn import PyroModule, PyroSample

    class Model(PyroModule):
        def __init__(self):
            super().__init__()
            self.linear = PyroModule[nn.Linear](8, 4)
            prior = dist.Normal(0.0, 1.0).expand([4, 8]).to_event(2)
            self.linear.weight = PyroSample(prior)

        def forward(self, features, classes):
            logits = self.linear(features)
            with pyro.plate("data", len(features)):
                pyro.sample("classes", dist.Categorical(logits=logits), obs=classes)

    torch.manual_seed(0)
    pyro.clear_param_store()
    model = Model()
    return model, AutoDiagonalNormal(model), Trace_ELBO()


@exact(
    "pyro-ppl",
    "Models",
    "loss = Trace_ELBO().differentiable_loss(model, guide, *batch)",
    note="An optimizer of torch makes the steps, in place of SVI.step.",
)
def test_by_an_optimizer_of_torch(folder):
    """A guide that is made by a first call, trained by an optimizer of torch."""
    model, guide, elbo = bayesian()
    guide(*(each[:4] for each in digits().tensors))  # makes its parameters
    both = nn.ModuleList([model, guide])
    update = Update(adam(both))

    def step(state, batch):
        loss = elbo.differentiable_loss(model, guide, *batch)
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    engine = Engine(step, update, objects={"model": both, "optimizer": update.optimizer})
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))

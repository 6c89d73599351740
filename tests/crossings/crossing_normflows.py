"""normflows: normalizing flows."""

import torch
from crossing import Trial, adam, digits, exact

from camshaft import Engine, Update


@exact("normflows", "Models", "loss = model.forward_kld(batch)")
def test_flow(folder):
    """A coupling flow with ActNorm, which begins from the first batch."""
    import normflows as nf

    torch.manual_seed(0)
    flows = []
    for _ in range(2):
        flows += [nf.flows.AffineCouplingBlock(nf.nets.MLP([4, 16, 8], init_zeros=True))]
        flows += [nf.flows.Permute(8, mode="shuffle"), nf.flows.ActNorm(8)]
    model = nf.NormalizingFlow(nf.distributions.DiagGaussian(8), flows)
    update = Update(adam(model))

    def step(state, batch):
        loss = model.forward_kld(batch[0])
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))

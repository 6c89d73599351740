"""nflows: normalizing flows."""

import torch
from crossing import Trial, adam, digits, exact

from camshaft import Engine, Update


@exact("nflows", "Models", "loss = -flow.log_prob(inputs=batch).mean()")
def test_flow(folder):
    """A masked autoregressive flow with ActNorm, which begins from the first batch."""
    from nflows.distributions.normal import StandardNormal
    from nflows.flows import Flow
    from nflows.transforms import (
        ActNorm,
        CompositeTransform,
        MaskedAffineAutoregressiveTransform,
        RandomPermutation,
    )

    torch.manual_seed(0)
    transforms = [ActNorm(8), RandomPermutation(8), MaskedAffineAutoregressiveTransform(8, 16)]
    flow = Flow(CompositeTransform(transforms), StandardNormal([8]))
    update = Update(adam(flow))

    def step(state, batch):
        loss = -flow.log_prob(inputs=batch[0]).mean()
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    engine = Engine(step, update, objects={"model": flow, "optimizer": update.optimizer})
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))

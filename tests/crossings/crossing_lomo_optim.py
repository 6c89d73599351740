"""lomo-optim: optimizers that step in the backward pass."""

import torch
from crossing import Trial, digits, exact, network
from torch.nn.functional import cross_entropy


@exact("lomo-optim", "Optimizers", "optimizer.fused_backward(loss, lr), in a step of your own")
def test_lomo(folder):
    """Lomo, which has no state, in a step of your own."""
    from lomo_optim import Lomo

    from camshaft import Engine

    model = network()
    optimizer = Lomo(model, lr=0.01)

    def step(state, batch):
        loss = cross_entropy(model(batch[0]), batch[1])
        optimizer.fused_backward(loss, 0.01)
        return {"loss": loss.detach()}

    engine = Engine(step, objects={"model": model, "optimizer": optimizer})
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))

"""torchjd: one step for several losses."""

import torch
from crossing import Trial, digits, exact, network
from torch.nn.functional import cross_entropy


@exact("torchjd", "Optimizers", "Engine(step, objects={...}), with autojac.backward in the step")
def test_upgrad(folder):
    """UPGrad, which joins the gradients of each sample's loss, in a step of your own."""
    from torchjd.aggregation import UPGrad
    from torchjd.autojac import backward, jac_to_grad

    from camshaft import Engine

    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    aggregator = UPGrad()

    def step(state, batch):
        optimizer.zero_grad()
        losses = cross_entropy(model(batch[0]), batch[1], reduction="none")
        backward(losses)
        jac_to_grad(model.parameters(), aggregator)
        optimizer.step()
        return {"loss": losses.mean().detach()}

    engine = Engine(step, objects={"model": model, "optimizer": optimizer})
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))

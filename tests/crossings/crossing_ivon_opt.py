"""ivon-opt: an optimizer that samples weights."""

import torch
from crossing import Trial, digits, exact, network
from torch.nn.functional import cross_entropy


@exact("ivon-opt", "Optimizers", "with optimizer.sampled_params(train=True): ...; optimizer.step()")
def test_ivon(folder):
    """IVON in a step of your own, with two samples of the weights."""
    from ivon import IVON

    from camshaft import Engine

    model = network()
    optimizer = IVON(model.parameters(), lr=0.1, ess=44)

    def step(state, batch):
        for _ in range(2):
            with optimizer.sampled_params(train=True):
                optimizer.zero_grad()
                loss = cross_entropy(model(batch[0]), batch[1])
                loss.backward()
        optimizer.step()
        return {"loss": loss.detach()}

    engine = Engine(step, objects={"model": model, "optimizer": optimizer})
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))

"""higher: learning to learn, through steps of an inner optimizer."""

import torch
from crossing import Trial, adam, digits, exact, network
from torch import nn

from camshaft import Engine, Update


@exact("higher", "Models", "with higher.innerloop_ctx(model, inner) as (copy, steps): ...")
def test_maml(folder):
    """MAML: the outer gradient goes through two steps of a copy of the model."""
    import higher

    model = network()
    inner = torch.optim.SGD(model.parameters(), 0.1)
    update = Update(adam(model))

    def step(state, batch):
        features, classes = batch
        with higher.innerloop_ctx(model, inner, copy_initial_weights=False) as (copy, steps):
            for _ in range(2):
                steps.step(nn.functional.cross_entropy(copy(features[:2]), classes[:2]))
            loss = nn.functional.cross_entropy(copy(features[2:]), classes[2:])
            update(state, loss)
        state.metrics["loss"] = loss.detach()

    engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))

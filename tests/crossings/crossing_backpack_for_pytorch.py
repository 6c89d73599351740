"""backpack-for-pytorch: more than the gradient of a backward pass."""

import torch
from crossing import Trial, digits, exact, network
from torch import nn


@exact("backpack-for-pytorch", "Optimizers", "with backpack(Variance()): update(state, loss)")
def test_variance(folder):
    """The variance of each parameter's gradient, as a metric, in a step of your own."""
    from backpack import backpack, extend
    from backpack.extensions import Variance

    from camshaft import Engine, Update

    model = extend(network())
    loss_fn = extend(nn.CrossEntropyLoss())
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    update = Update(optimizer)

    def step(state, batch):
        with backpack(Variance()):
            update(state, loss_fn(model(batch[0]), batch[1]))
        return {"variance": sum(each.variance.sum() for each in model.parameters())}

    engine = Engine(step, update, objects={"model": model, "optimizer": optimizer})
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))

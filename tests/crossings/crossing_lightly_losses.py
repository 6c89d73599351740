"""lightly: losses with a memory."""

import torch
from crossing import Trial, adam, digits, exact, network

from camshaft import Engine, Update


@exact("lightly", "Models", "loss_fn = NTXentLoss(memory_bank_size=(14, 4))  # used by the step")
def test_memory_bank(folder):
    """NTXentLoss with a memory bank and a momentum encoder; the bank is not in its state_dict."""
    from copy import deepcopy

    from lightly.loss import NTXentLoss
    from lightly.models.utils import deactivate_requires_grad, update_momentum

    model = network()
    slow = deepcopy(model)
    deactivate_requires_grad(slow)
    torch.manual_seed(0)
    loss_fn = NTXentLoss(memory_bank_size=(14, 4))
    update = Update(adam(model))

    def step(state, batch):
        features, _ = batch
        update_momentum(model, slow, m=0.9)
        loss = loss_fn(model(features), slow(features + torch.randn_like(features)))
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    objects = {"model": model, "slow": slow, "optimizer": update.optimizer}
    engine = Engine(step, update, objects=objects)
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))


@exact("lightly", "Models", "SwaVPrototypes, SwaVLoss and a MemoryBankModule as a queue")
def test_swav(folder):
    """SwaV's prototypes, which are normalized in place, and a queue of features."""
    from lightly.loss import SwaVLoss
    from lightly.models.modules import SwaVPrototypes
    from lightly.models.modules.memory_bank import MemoryBankModule

    model = network()
    model.append(SwaVPrototypes(4, 6))
    torch.manual_seed(0)
    loss_fn, queue = SwaVLoss(), MemoryBankModule((12, 4))
    update = Update(adam(model))

    def step(state, batch):
        model[-1].normalize()
        views = [batch[0] + 0.1 * torch.randn_like(batch[0]) for _ in range(2)]
        features = [model[:-1](view) for view in views]
        _, old = queue(features[0].detach(), update=True)
        scores = [model[-1](each) for each in features]
        loss = loss_fn(scores, [], [model[-1](old.T), model[-1](old.T)])
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))

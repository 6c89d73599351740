"""tensordict: modules that read and write the names of a dictionary, and batches of them."""

import torch
from crossing import Trial, adam, digits, exact, network
from torch import nn

from camshaft import Engine, Update
from camshaft.handlers import EMA


@exact("tensordict", "Models", 'TensorDictModule(model, ["features"], ["scores"])')
def test_modules(folder):
    """TensorDictSequential with a draw from a distribution, on batches that are TensorDicts."""
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    model = TensorDictSequential(TensorDictModule(network(), ["features"], ["scores"]))
    features, classes = digits().tensors
    data = TensorDict({"features": features, "classes": classes}, batch_size=44)
    update = Update(adam(model))

    def step(state, batch):
        loss = nn.functional.cross_entropy(model(batch)["scores"], batch["classes"])
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})
    loader = torch.utils.data.DataLoader(data, 4, shuffle=True, collate_fn=torch.stack)
    return Trial(engine.add(EMA(0.9)), loader)

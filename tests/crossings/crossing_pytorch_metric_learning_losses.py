"""pytorch-metric-learning: losses with weights, memories and miners."""

import torch
from crossing import Trial, adam, digits, exact, network
from torch import nn

from camshaft import Engine, Update, supervised


@exact(
    "pytorch-metric-learning",
    "Models",
    "supervised(model, Adam([*model.parameters(), *loss.parameters()]), loss)",
)
def test_loss_with_weights(folder):
    """ArcFaceLoss, whose weights are trained with the model."""
    from pytorch_metric_learning.losses import ArcFaceLoss

    model = network()
    loss = ArcFaceLoss(num_classes=4, embedding_size=4)
    engine = supervised(model, adam(nn.ModuleList([model, loss])), loss)
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))


@exact(
    "pytorch-metric-learning",
    "Models",
    "memory = CrossBatchMemory(loss, 4, memory_size=32)  # used by the step, and not named",
)
def test_memory(folder):
    """CrossBatchMemory, whose place in its memory is no part of its state_dict, and a miner."""
    from pytorch_metric_learning.losses import ContrastiveLoss, CrossBatchMemory
    from pytorch_metric_learning.miners import MultiSimilarityMiner

    model = network()
    memory = CrossBatchMemory(ContrastiveLoss(), 4, memory_size=14, miner=MultiSimilarityMiner())
    update = Update(adam(model))

    def step(state, batch):
        features, classes = batch
        loss = memory(model(features), classes)
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))

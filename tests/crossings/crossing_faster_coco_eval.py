"""faster-coco-eval: mean average precision of boxes, through torchmetrics."""

import torch
from crossing import Trial, adam, exact, network

from camshaft import Engine, Update
from camshaft.handlers import Metrics


def boxes(backend):
    """A model that moves boxes, and MeanAveragePrecision of them over each epoch."""
    from torchmetrics.detection import MeanAveragePrecision

    model = network()
    update = Update(adam(model))

    def step(state, batch):
        features, corners = batch
        found = model(features) + corners
        update(state, (found - corners).square().mean())
        return {"found": found.detach(), "corners": corners}

    def pairs(output):
        labels = torch.zeros(1, dtype=torch.int64)
        found = [
            {"boxes": box[None], "scores": box[:1].sigmoid(), "labels": labels}
            for box in output["found"]
        ]
        return found, [{"boxes": box[None], "labels": labels} for box in output["corners"]]

    metric = MeanAveragePrecision(backend=backend)
    engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})
    engine.add(Metrics({"map": metric}, select=pairs))
    low = 9 * torch.rand(44, 2)
    corners = torch.cat([low, low + 3], 1)
    data = torch.utils.data.TensorDataset(torch.randn(44, 8), corners)
    return Trial(engine, torch.utils.data.DataLoader(data, 4, shuffle=True))


@exact(
    "faster-coco-eval",
    "Metrics",
    'Metrics({"map": MeanAveragePrecision(backend="faster_coco_eval")}, select=pairs)',
)
def test_boxes(folder):
    """MeanAveragePrecision, which keeps the boxes of an epoch as lists."""
    torch.manual_seed(0)
    return boxes("faster_coco_eval")

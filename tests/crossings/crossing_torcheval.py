"""torcheval: metrics with `update`, `compute` and `reset`."""

import torch
from crossing import adam, digits, exact, network, trained_by

from camshaft.handlers import Metrics, Validate


@exact("torcheval", "Metrics", 'Metrics({"auroc": MulticlassAUROC(num_classes=4)})')
def test_metrics(folder):
    """MulticlassAccuracy, which counts, and MulticlassAUROC, which keeps all predictions."""
    from torcheval.metrics import MulticlassAccuracy, MulticlassAUROC

    metrics = {"accuracy": MulticlassAccuracy(), "auroc": MulticlassAUROC(num_classes=4)}
    validate = Validate(torch.utils.data.DataLoader(digits(20), 6), name="val")
    return trained_by(adam, network, Metrics(metrics), validate)

"""torcheval: metrics with `update`, `compute` and `reset`."""

from crossing import adam, exact, held_out, network, trained_by

from camshaft.handlers import Metrics


@exact("torcheval", "Metrics", 'Metrics({"auroc": MulticlassAUROC(num_classes=4)})')
def test_metrics(folder):
    """MulticlassAccuracy, which counts, and MulticlassAUROC, which keeps all predictions."""
    from torcheval.metrics import MulticlassAccuracy, MulticlassAUROC

    metrics = {"accuracy": MulticlassAccuracy(), "auroc": MulticlassAUROC(num_classes=4)}
    return trained_by(adam, network, Metrics(metrics), held_out())

"""torch-ema: an average of weights."""

import torch
from crossing import exact, trained_by


@exact("torch-ema", "Averages", 'engine.objects["average"] = ExponentialMovingAverage(...)')
def test_average(folder):
    """ExponentialMovingAverage, updated after each step."""
    from torch_ema import ExponentialMovingAverage

    def beside(model, optimizer):
        average = ExponentialMovingAverage(model.parameters(), decay=0.9)
        return {"average": average}, average.update

    return trained_by(lambda model: torch.optim.Adam(model.parameters(), 0.01), beside=beside)

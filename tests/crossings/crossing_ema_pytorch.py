"""ema-pytorch: averages of weights."""

import torch
from crossing import exact, trained_by


@exact("ema-pytorch", "Averages", 'engine.objects["average"] = EMA(model, ...)')
def test_average(folder):
    """EMA with a power warm-up, updated after each step."""
    from ema_pytorch import EMA

    def beside(model, optimizer):
        average = EMA(model, beta=0.99, update_after_step=4, update_every=2)
        return {"average": average}, average.update

    return trained_by(lambda model: torch.optim.Adam(model.parameters(), 0.01), beside=beside)


@exact("ema-pytorch", "Averages", 'engine.objects["averages"] = KarrasEMA(model, ...)')
def test_karras(folder):
    """KarrasEMA, whose decay grows with the number of steps."""
    from ema_pytorch import KarrasEMA

    def beside(model, optimizer):
        average = KarrasEMA(model, sigma_rel=0.1, update_every=1)
        return {"average": average}, average.update

    return trained_by(lambda model: torch.optim.Adam(model.parameters(), 0.01), beside=beside)

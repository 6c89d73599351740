"""torchcontrib: weight averaging around an optimizer."""

import torch
from crossing import told, trained_by


@told(
    "torchcontrib", "Averages", "engine.add(SWA(), Checkpoint(...))", match="SWA, and a checkpoint"
)
def test_swa(folder):
    """SWA around SGD, which cannot load a state with torch 2."""
    from torchcontrib.optim import SWA

    return trained_by(
        lambda model: SWA(torch.optim.SGD(model.parameters(), 0.1), swa_start=10, swa_freq=5)
    )

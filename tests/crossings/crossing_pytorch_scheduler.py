"""pytorch-scheduler: a collection of schedules."""

import torch
from crossing import exact, trained_by


@exact(
    "pytorch-scheduler", "Schedules", "LRSchedule(CosineAnnealingWarmupRestarts(optimizer, ...))"
)
def test_restarts(folder):
    """CosineAnnealingWarmupRestarts over SGD."""
    from pytorch_scheduler import CosineAnnealingWarmupRestarts

    return trained_by(
        lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
        schedule=lambda optimizer: CosineAnnealingWarmupRestarts(
            optimizer, 10, warmup_steps=3, max_lr=0.1, min_lr=0.001
        ),
    )

"""warmup-scheduler: a warm-up before another schedule."""

import torch
from crossing import told, trained_by


@told(
    "warmup-scheduler",
    "Schedules",
    "LRSchedule(warmup(5).then(cosine())), or torch's SequentialLR",
    match="after_scheduler is a .*CosineAnnealingLR",
)
def test_warmup(folder):
    """GradualWarmupScheduler before a cosine of torch's, which its state holds as an object."""
    from warmup_scheduler import GradualWarmupScheduler

    def warmed(optimizer):
        after = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 28)
        return GradualWarmupScheduler(optimizer, 1, 5, after)

    return trained_by(lambda model: torch.optim.SGD(model.parameters(), 0.1), schedule=warmed)

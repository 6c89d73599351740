"""pytorch_warmup: a warm-up that dampens another schedule."""

import torch
from crossing import exact, told, trained_by


@told(
    "pytorch_warmup",
    "Schedules",
    "LRSchedule(warmup(4).then(cosine()))",
    match="LinearWarmup.*needs a torch scheduler",
)
def test_in_schedule(folder):
    """LinearWarmup in LRSchedule."""
    from crossing import network
    from pytorch_warmup import LinearWarmup

    from camshaft.handlers import LRSchedule

    return trained_by(
        lambda model: torch.optim.AdamW(model.parameters(), 0.01),
        network,
        LRSchedule(lambda optimizer, horizon: LinearWarmup(optimizer, 4)),
    )


@exact("pytorch_warmup", "Schedules", 'engine.objects["warmup"] = LinearWarmup(optimizer, 4)')
def test_by_hand(folder):
    """LinearWarmup before a cosine of torch's, stepped as the library's page says."""
    from pytorch_warmup import LinearWarmup

    def beside(model, optimizer):
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 33)
        warmup = LinearWarmup(optimizer, 4)

        def step():
            with warmup.dampening():
                schedule.step()

        return {"schedule": schedule, "warmup": warmup}, step

    return trained_by(lambda model: torch.optim.AdamW(model.parameters(), 0.01), beside=beside)

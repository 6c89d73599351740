"""timm: schedules and averages."""

import torch
from crossing import exact, network, trained_by


@exact("timm", "Averages", 'engine.objects["average"] = ModelEmaV3(model, ...)')
def test_average(folder):
    """ModelEmaV3 with its warm-up, updated after each step."""
    from timm.utils import ModelEmaV3

    def beside(model, optimizer):
        average = ModelEmaV3(model, decay=0.99, use_warmup=True)
        return {"average": average}, lambda: average.update(model)

    return trained_by(lambda model: torch.optim.Adam(model.parameters(), 0.01), beside=beside)


@exact(
    "timm",
    "Schedules",
    "LRSchedule(lambda optimizer, horizon: CosineLRScheduler(optimizer, horizon.steps, ...))",
)
def test_cosine(folder):
    """CosineLRScheduler by steps, with warm-up and noise."""
    from timm.scheduler import CosineLRScheduler

    from camshaft.handlers import LRSchedule

    def cosine(optimizer, horizon):
        return CosineLRScheduler(
            optimizer,
            horizon.steps,
            warmup_t=5,
            warmup_lr_init=1e-4,
            noise_range_t=[10, 20],
            t_in_epochs=False,
        )

    return trained_by(
        lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
        network,
        LRSchedule(cosine),
        by_hand=None,
    )

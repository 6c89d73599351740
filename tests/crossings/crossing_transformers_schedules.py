"""transformers: Adafactor and schedules."""

import torch
from crossing import exact, trained_by


@exact(
    "transformers",
    "Schedules",
    "LRSchedule(lambda optimizer, horizon: AdafactorSchedule(optimizer))",
)
def test_adafactor(folder):
    """Adafactor with relative steps, and AdafactorSchedule, which shows its rate."""
    from transformers.optimization import Adafactor, AdafactorSchedule

    def shown(optimizer):
        return AdafactorSchedule(optimizer)

    return trained_by(lambda model: Adafactor(model.parameters(), warmup_init=True), schedule=shown)


@exact(
    "transformers",
    "Schedules",
    "LRSchedule(lambda optimizer, horizon: get_wsd_schedule(optimizer, 5, 10, horizon.steps))",
)
def test_wsd(folder):
    """get_wsd_schedule: a warm-up, a plateau and a decay."""
    from transformers import get_wsd_schedule

    return trained_by(
        lambda model: torch.optim.AdamW(model.parameters(), 0.01),
        schedule=lambda optimizer: get_wsd_schedule(optimizer, 5, 10, 33),
    )

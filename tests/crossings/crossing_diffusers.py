"""diffusers: an average of weights and schedules."""

import torch
from crossing import exact, trained_by


@exact("diffusers", "Averages", 'engine.objects["average"] = EMAModel(model.parameters(), ...)')
def test_average(folder):
    """EMAModel with its inverse-gamma warm-up, stepped after each step."""
    from diffusers.optimization import get_scheduler
    from diffusers.training_utils import EMAModel

    def beside(model, optimizer):
        average = EMAModel(model.parameters(), decay=0.99, use_ema_warmup=True, power=0.75)
        return {"average": average}, lambda: average.step(model.parameters())

    return trained_by(
        lambda model: torch.optim.AdamW(model.parameters(), 0.01),
        beside=beside,
        schedule=lambda optimizer: get_scheduler(
            "cosine_with_restarts",
            optimizer,
            num_warmup_steps=4,
            num_training_steps=33,
            num_cycles=2,
        ),
    )

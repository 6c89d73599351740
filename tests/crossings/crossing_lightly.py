"""lightly: schedules and momentum encoders of self-supervised learning."""

import copy

import torch
from crossing import exact, trained_by


@exact("lightly", "Averages", "update_momentum(model, teacher, m=cosine_schedule(state.step, ...))")
def test_momentum_encoder(folder):
    """A teacher whose momentum follows a cosine of the number of steps."""
    from lightly.models.utils import deactivate_requires_grad, update_momentum
    from lightly.utils.scheduler import cosine_schedule

    def beside(model, optimizer):
        teacher = copy.deepcopy(model)
        deactivate_requires_grad(teacher)
        steps = {"made": 0}

        def after_step():
            momentum = cosine_schedule(steps["made"], 33, 0.9, 1.0)
            update_momentum(model, teacher, m=momentum)
            steps["made"] += 1

        return {"teacher": teacher}, after_step

    return trained_by(lambda model: torch.optim.SGD(model.parameters(), 0.1), beside=beside)


@exact(
    "lightly", "Optimizers", "supervised(model, LARS(...), loss); LRSchedule(CosineWarmupScheduler)"
)
def test_lars(folder):
    """LARS and CosineWarmupScheduler."""
    from lightly.utils.lars import LARS
    from lightly.utils.scheduler import CosineWarmupScheduler

    return trained_by(
        lambda model: LARS(model.parameters(), lr=0.1, momentum=0.9),
        schedule=lambda optimizer: CosineWarmupScheduler(optimizer, 5, 34),
    )

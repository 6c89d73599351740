"""Schedules: the handler that steps them, and the pieces that they are made of."""

from typing import TYPE_CHECKING

from ...engine.late import late

if TYPE_CHECKING:
    from ...engine.horizon import Horizon
    from .lr_schedule import LRSchedule, ScheduleEvents
    from .pieces import (
        cosine,
        curve,
        exponential,
        hold,
        inverse,
        inverse_sqrt,
        linear,
        noam,
        polynomial,
        restarts,
        sqrt,
        tri_stage,
        warmup,
        warmup_stable_decay,
    )
    from .schedule import Schedule
else:
    __getattr__ = late(
        __name__,
        {
            "Horizon": "...engine.horizon",
            "LRSchedule": ".lr_schedule",
            "Schedule": ".schedule",
            "ScheduleEvents": ".lr_schedule",
            "cosine": ".pieces",
            "curve": ".pieces",
            "exponential": ".pieces",
            "hold": ".pieces",
            "inverse": ".pieces",
            "inverse_sqrt": ".pieces",
            "linear": ".pieces",
            "noam": ".pieces",
            "polynomial": ".pieces",
            "restarts": ".pieces",
            "sqrt": ".pieces",
            "tri_stage": ".pieces",
            "warmup": ".pieces",
            "warmup_stable_decay": ".pieces",
        },
    )

__all__ = [
    "Horizon",
    "LRSchedule",
    "Schedule",
    "ScheduleEvents",
    "cosine",
    "curve",
    "exponential",
    "hold",
    "inverse",
    "inverse_sqrt",
    "linear",
    "noam",
    "polynomial",
    "restarts",
    "sqrt",
    "tri_stage",
    "warmup",
    "warmup_stable_decay",
]


def __dir__() -> list[str]:
    return __all__

"""What a training run is checked for: steps that nothing announces, weights that do not learn."""

from .evaluated import check_evaluated
from .parameters import check_evaluation, check_training, warn_if_it_drifts
from .steps import StepCheck
from .warn import warn

__all__ = [
    "StepCheck",
    "check_evaluated",
    "check_evaluation",
    "check_training",
    "warn",
    "warn_if_it_drifts",
]

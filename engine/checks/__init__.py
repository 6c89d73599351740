"""What a run is checked for: samples as batches, steps that nothing announces, idle weights."""

from .evaluated import check_evaluated
from .parameters import check_evaluation, check_training, warn_if_it_drifts
from .samples import refuse_samples
from .sharded import refuse_wrappers
from .steps import StepCheck
from .warn import warn

__all__ = [
    "StepCheck",
    "check_evaluated",
    "check_evaluation",
    "check_training",
    "refuse_samples",
    "refuse_wrappers",
    "warn",
    "warn_if_it_drifts",
]

"""What a run is checked for: arguments, modes, idle weights, unannounced steps, unsaved objects."""

from .alike import check_alike
from .arguments import no_handler, objects_of, refuse_other_process, refuse_samples
from .evaluated import check_evaluated
from .gradients import GradientCheck
from .modes import Modes
from .parameters import check_evaluation, check_training, warn_if_it_drifts
from .reached import Unsaved, words_in
from .sharded import refuse_wrappers
from .steps import StepCheck
from .warn import warn

__all__ = [
    "GradientCheck",
    "Modes",
    "StepCheck",
    "Unsaved",
    "check_alike",
    "check_evaluated",
    "check_evaluation",
    "check_training",
    "no_handler",
    "objects_of",
    "refuse_other_process",
    "refuse_samples",
    "refuse_wrappers",
    "warn",
    "warn_if_it_drifts",
    "words_in",
]

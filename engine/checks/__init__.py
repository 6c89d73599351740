"""The checks of a run: arguments, modes, idle weights, unannounced steps, unsaved objects."""

from ..explain import warn
from .arguments import no_handler, objects_of, refuse_other_process, refuse_samples, what_is
from .attach import attach_checks
from .changed import Changes, script_functions
from .gradients import GradientCheck
from .parameters import warn_if_it_drifts
from .reached import doubts_of_workers, generators_of_run, reached
from .same_on_ranks import check_same_on_ranks
from .sharded import refuse_wrappers

__all__ = [
    "Changes",
    "GradientCheck",
    "attach_checks",
    "check_same_on_ranks",
    "doubts_of_workers",
    "generators_of_run",
    "no_handler",
    "objects_of",
    "reached",
    "refuse_other_process",
    "refuse_samples",
    "refuse_wrappers",
    "script_functions",
    "warn",
    "warn_if_it_drifts",
    "what_is",
]

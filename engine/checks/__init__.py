"""The checks of a run: arguments, modes, idle weights, unannounced steps."""

from ..explain import warn
from .arguments import (
    no_handler,
    objects_of,
    refuse_other_process,
    refuse_samples,
    type_and_shape,
    what_is,
)
from .attach import attach_checks
from .gradients import GradientCheck
from .parameters import warn_if_it_drifts
from .same_on_ranks import check_same_on_ranks
from .samples import warn_of_shared
from .sharded import refuse_wrappers

__all__ = [
    "GradientCheck",
    "attach_checks",
    "check_same_on_ranks",
    "no_handler",
    "objects_of",
    "refuse_other_process",
    "refuse_samples",
    "refuse_wrappers",
    "type_and_shape",
    "warn",
    "warn_if_it_drifts",
    "warn_of_shared",
    "what_is",
]

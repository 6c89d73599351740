"""The checks of one run: each is called at the moments of the run at which it looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..signals import Process
from ..state import State
from .evaluated import Evaluated
from .gradients import GradientCheck
from .modes import Modes
from .parameters import check_evaluation, check_training
from .steps import StepCheck

if TYPE_CHECKING:
    from ..moments import Moments


def attach_checks(state: State[Any, Any], moments: Moments, process: Process[Any, Any]) -> None:
    """Check a run from here on, after the handlers of its beginning; not a rehearsal."""
    engine = state.engine
    if moments.rehearsal is not None:
        return
    if state.training:
        check_training(engine.objects, engine.handlers)
        StepCheck(state, moments, process)
        Modes(state, moments, process)
        GradientCheck(state, moments, process)
    else:
        check_evaluation(engine.objects, engine.handlers)
        Evaluated(moments)

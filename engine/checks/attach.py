"""The checks of one run: each check is called at its moments of the run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..signals import Process
from ..state import State
from .checked import Checked
from .evaluation import check_averaged, check_mode
from .gradients import GradientCheck
from .modes import Modes
from .parameters import check_idle, check_known, check_stepped
from .sharded import check_sharded
from .steps import StepCheck, check_limit, check_windows

if TYPE_CHECKING:
    from ..moments import Moments


def attach_checks(state: State[Any, Any], moments: Moments, process: Process[Any, Any]) -> None:
    """Attach all checks to a run, after the handlers of its start; not to a rehearsal.

    A check attaches itself to the moments at which it looks, when it is called or made.
    """
    if moments.rehearsal is not None:
        return
    run = Checked(state, moments, process)
    has_torch = "torch" in sys.modules
    if not state.training:
        check_mode(run)
        check_averaged(run)
        return
    if has_torch:
        check_sharded(run)
        check_known(run)
        check_stepped(run)
    StepCheck(run)
    check_windows(run)
    if has_torch:
        check_idle(run)
    check_limit(run)
    Modes(run)
    GradientCheck(run)

"""The checks of one run, which begin after the handlers of its start."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from .. import ranks
from ..explain import warn
from ..signals import Process
from ..state import State
from .checked import Checked
from .dropout import check_dropout
from .gradients import check_clipping, check_gradients
from .modes import check_evaluation, check_modes
from .parameters import check_idle, check_known, check_stepped, refuse_autocast
from .samples import check_averaged, check_dropped, check_order
from .sharded import check_sharded
from .steps import check_forgotten, check_limit, check_saves, check_steps, check_windows

if TYPE_CHECKING:
    from ..moments import Moments


LAUNCHED: int = int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1
"""How many processes torchrun has started for this script."""


def attach_checks(state: State[Any, Any], moments: Moments, process: Process[Any, Any]) -> None:
    """Begin all checks of a run; of a rehearsal, none."""
    if moments.rehearsal is not None:
        return
    run = Checked(state, moments, process)
    if not state.training:
        check_evaluation(run)
        check_dropped(run)
        run.follow(check_averaged(run))
        return
    checks = [check_steps(run), check_windows(run), check_limit(run), check_modes(run)]
    if "torch" in sys.modules:
        refuse_autocast()
        if ranks.is_distributed():
            check_sharded(run)
        elif LAUNCHED > 1:
            warn(
                f"torchrun has started {LAUNCHED} processes of this script, which have not joined: "
                "each one trains alone, on all of the data. Write model = ranks.prepare(model) "
                "before the optimizer is made"
            )
        if run.objects:
            check_dropout(run)
        check_clipping(run)
        check_known(run)
        check_stepped(run)
        checks += check_idle(run), check_gradients(run), check_order(run), *check_forgotten(run)
        if len(run.optimizers) > len(run.updates):
            checks.append(check_saves(run))
    run.follow(*checks)

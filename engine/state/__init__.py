"""The state of a run: its clocks, metrics, handler memory, and position in the data."""

from .contents import has_state
from .generators import (
    Rng,
    capture_generators,
    generators_of,
    global_generators,
    is_generator,
    own_generators,
    restore_generators,
    seed_all,
    seed_from,
    seed_of,
    seed_of_rank,
    set_state,
)
from .latest_metrics import LatestMetrics, as_float
from .leaving import (
    LEAVABLE,
    OF_ITERATION,
    OF_START,
    Left,
    can_leave,
    leave_evaluations,
    must_leave,
)
from .run_control import Dealing, Position, RunControl
from .state import Batch, Output, State, under_way

__all__ = [
    "LEAVABLE",
    "OF_ITERATION",
    "OF_START",
    "Batch",
    "Dealing",
    "LatestMetrics",
    "Left",
    "Output",
    "Position",
    "Rng",
    "RunControl",
    "State",
    "as_float",
    "can_leave",
    "capture_generators",
    "generators_of",
    "global_generators",
    "has_state",
    "is_generator",
    "leave_evaluations",
    "must_leave",
    "own_generators",
    "restore_generators",
    "seed_all",
    "seed_from",
    "seed_of",
    "seed_of_rank",
    "set_state",
    "under_way",
]

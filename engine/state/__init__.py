"""The state of a run: its clocks, metrics, handler memory, and position in the data."""

from .contents import has_state
from .generators import (
    Rng,
    capture_generators,
    generators_of,
    gives_batches,
    global_generators,
    is_generator,
    own_generators,
    parts_inside,
    places_in,
    restore_generators,
    seed_all,
    seed_from,
    seed_of,
    seed_of_rank,
    set_state,
)
from .latest_metrics import LatestMetrics, as_float
from .run_control import Dealing, Position, RunControl
from .state import Batch, Output, State, under_way

__all__ = [
    "Batch",
    "Dealing",
    "LatestMetrics",
    "Output",
    "Position",
    "Rng",
    "RunControl",
    "State",
    "as_float",
    "capture_generators",
    "generators_of",
    "gives_batches",
    "global_generators",
    "has_state",
    "is_generator",
    "own_generators",
    "parts_inside",
    "places_in",
    "restore_generators",
    "seed_all",
    "seed_from",
    "seed_of",
    "seed_of_rank",
    "set_state",
    "under_way",
]

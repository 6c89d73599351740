"""From losses to optimizer steps: accumulation windows, averaging over ranks, loss scaling."""

from .buckets import arrange_buckets, buckets_of, warn_of_buckets
from .gradients import (
    Gradients,
    non_finite,
    norm_of,
    norm_read_by_all,
    parameters_of,
    ready_gradients,
)
from .micro_batch import MicroBatch
from .optimizers import Given, Optimizers, one_of
from .sync import are_alike
from .update import NoTraining, Update

__all__ = [
    "Given",
    "Gradients",
    "MicroBatch",
    "NoTraining",
    "Optimizers",
    "Update",
    "are_alike",
    "arrange_buckets",
    "buckets_of",
    "non_finite",
    "norm_of",
    "norm_read_by_all",
    "one_of",
    "parameters_of",
    "ready_gradients",
    "warn_of_buckets",
]

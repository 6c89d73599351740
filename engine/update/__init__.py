"""From losses to optimizer steps: accumulation windows, averaging over ranks, loss scaling."""

from .alike import Alike
from .gradients import are_plain, gradients_of, non_finite, norm_of, parameters_of, scale
from .update import Update

__all__ = [
    "Alike",
    "Update",
    "are_plain",
    "gradients_of",
    "non_finite",
    "norm_of",
    "parameters_of",
    "scale",
]

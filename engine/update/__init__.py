"""From losses to optimizer steps: accumulation windows, averaging over ranks, loss scaling."""

from .alike import Alike
from .gradients import gradients_of, multiply, non_finite, norm_of, parameters_of
from .update import Update

__all__ = [
    "Alike",
    "Update",
    "gradients_of",
    "multiply",
    "non_finite",
    "norm_of",
    "parameters_of",
]

"""Fine-tuning: pretrained weights, groups of parameters, and layers that are frozen for a time."""

from .freeze import Freeze
from .load_matching import Matching, load_matching
from .parameter_groups import describe_groups, norms_and_biases, parameter_groups

__all__ = [
    "Freeze",
    "Matching",
    "describe_groups",
    "load_matching",
    "norms_and_biases",
    "parameter_groups",
]

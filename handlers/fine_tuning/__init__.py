"""Fine-tuning: parameter groups by patterns of names, and layers that are frozen for a time."""

from .freeze import Freeze
from .parameter_groups import describe_groups, parameter_groups
from .patterns import norms_and_biases

__all__ = ["Freeze", "describe_groups", "norms_and_biases", "parameter_groups"]

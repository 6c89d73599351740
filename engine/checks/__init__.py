"""What a training run is checked for: steps that nothing announces, parameters that stay as they are."""

from .parameters import check_objects, drifting_norms
from .steps import StepCheck
from .warn import warn

__all__ = ["StepCheck", "check_objects", "drifting_norms", "warn"]

"""Fine-tuning: pretrained weights, groups of parameters, and layers that are frozen for a time."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

"""Modules of torch: their wrappers, weights, activations, and evaluation without a trace."""

from ..late import late

__getattr__, __dir__, __all__ = late(__name__)

"""Torch modules: their wrappers, weights, activations, and evaluation without side effects."""

from ..late import late

__getattr__, __dir__, __all__ = late(__name__)

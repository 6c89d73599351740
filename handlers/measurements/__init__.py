"""Measurements of speed, machine and weights, as metrics; garbage collection; logs of ranks."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

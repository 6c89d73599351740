"""Metrics: over an epoch, over a window, and over a whole run."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

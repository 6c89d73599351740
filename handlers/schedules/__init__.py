"""Schedules of learning rates: the handler that steps them, and the pieces to build them of."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

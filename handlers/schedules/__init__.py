"""Schedules: the handler that steps them, and the pieces that they are made of."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

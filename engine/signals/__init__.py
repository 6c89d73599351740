"""Signals: blinker's, but ordered, strong, and known to the runs that listen."""

from ..late import late

__getattr__, __dir__, __all__ = late(__name__)

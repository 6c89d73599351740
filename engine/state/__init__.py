"""The state of a run: its clocks, metrics, handler memory, and position in the data."""

from ..late import late

__getattr__, __dir__, __all__ = late(__name__)

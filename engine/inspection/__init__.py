"""What an engine would call and what it did call: tables, a diagram, traces."""

from ..late import late

__getattr__, __dir__, __all__ = late(__name__)

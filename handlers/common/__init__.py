"""What several handlers need: named objects, media, numbers, comparisons, schedulers, tables."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

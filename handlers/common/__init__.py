"""What several handlers need: named objects, comparisons, media, reporting, schedulers, tables."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

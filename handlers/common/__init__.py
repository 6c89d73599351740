"""What several handlers need: comparisons, media, named objects, plain values and others."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

"""What several handlers need: media, metrics as numbers, modes, schedulers, and tables of text."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

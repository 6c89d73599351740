"""Finding settings: the learning rate, the batch size, and the trials of a sweep."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

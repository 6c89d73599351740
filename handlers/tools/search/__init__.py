"""Finding settings: the learning rate and the batch size."""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

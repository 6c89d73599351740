"""The engine of the usual case: a model, an optimizer and a loss function."""

from ..late import late

__getattr__, __dir__, __all__ = late(__name__)

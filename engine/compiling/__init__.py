"""Steps made faster by torch.compile: the compiled parts, and reports about their graphs."""

from ..late import late

__getattr__, __dir__, __all__ = late(__name__)

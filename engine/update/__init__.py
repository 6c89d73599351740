"""From losses to optimizer steps: accumulation windows, averaging over ranks, loss scaling."""

from ..late import late

__getattr__, __dir__, __all__ = late(__name__)

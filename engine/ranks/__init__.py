"""The ranks of a distributed run; without a process group there is one, and no communication."""

from ..late import late

__getattr__, __dir__, __all__ = late(__name__)

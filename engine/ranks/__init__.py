"""The ranks of a distributed run; without a process group there is one, and no communication."""

from importlib import import_module

from ..late import late

__getattr__, __dir__, __all__ = late(__name__)
import_module(".failure", __name__)  # at once, since it notes when the process began

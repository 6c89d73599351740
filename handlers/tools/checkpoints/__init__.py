"""The commands about checkpoints, for the command line: they print, and give an exit code."""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

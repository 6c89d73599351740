"""A step computed again: one that has just been computed, or one of a run that is over.

`ReplayCheck` computes a step twice while a run goes on. `camshaft replay` starts the script of a
run again, from a checkpoint; `player.py` is what its processes do.
"""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

"""Evaluations on other machines, by a script that follows a run, which takes their results in.

`follow(directory)` gives checkpoints to that script as they come, and `ValidateElsewhere` is the
handler of the run. Between the two are small files beside the checkpoints: see `../results.py`. For
a machine that sees only the store of the run, the room of the mirror brings them.
"""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

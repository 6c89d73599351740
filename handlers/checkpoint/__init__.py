"""Checkpoints that outlive the process: saving a run, keeping some, resuming, and looking at them.

`Checkpoint` and `Export` are handlers. `checkpoints(directory)` reads what they wrote, without
torch.
"""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

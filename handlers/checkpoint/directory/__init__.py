"""A directory of checkpoints: finding, reading, writing and dropping them, and its lock.

Importing this room imports no torch.
"""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

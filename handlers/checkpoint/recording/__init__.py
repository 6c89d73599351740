"""One run's checkpoints in one directory: from the snapshot to the disk.

Handlers use `Recorder`. It copies what a handler has taken, on one rank or on all ranks together,
and lets a thread write the copy.
"""

from .content import Content
from .memory import CheckpointMemory
from .recorder import Recorder

__all__ = ["CheckpointMemory", "Content", "Recorder"]

"""One run's checkpoints in one directory: from the snapshot to the disk.

`Recorder` is what a handler talks to. It copies what was taken, alone or in agreement with the
other ranks, and lets a thread write it.
"""

from .content import Content
from .memory import CheckpointMemory
from .recorder import Recorder

__all__ = ["CheckpointMemory", "Content", "Recorder"]

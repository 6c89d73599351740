"""Checkpoints that outlive the process: saving, keeping and resuming runs."""

from .checkpoint import Checkpoint
from .retention import best, every, latest
from .store import Saved, checkpoints

__all__ = ["Checkpoint", "Saved", "best", "checkpoints", "every", "latest"]

"""Checkpoints that outlive the process: saving, keeping and resuming runs."""

from .checkpoint import Checkpoint
from .lookup import Checkpoints, checkpoints
from .retention import best, every, latest
from .store import Saved

__all__ = ["Checkpoint", "Checkpoints", "Saved", "best", "checkpoints", "every", "latest"]

"""Checkpoints that outlive the process: saving, keeping and resuming runs."""

from .checkpoint import Checkpoint
from .export import Export
from .retention import best, every, latest
from .store import Saved, checkpoints

__all__ = ["Checkpoint", "Export", "Saved", "best", "checkpoints", "every", "latest"]

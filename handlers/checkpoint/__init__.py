"""Checkpoints that outlive the process: saving, keeping and resuming runs."""

from .broken import BrokenCheckpoint
from .checkpoint import Checkpoint
from .export import Export
from .retention import best, every, latest
from .store import Saved, checkpoints

__all__ = [
    "BrokenCheckpoint",
    "Checkpoint",
    "Export",
    "Saved",
    "best",
    "checkpoints",
    "every",
    "latest",
]

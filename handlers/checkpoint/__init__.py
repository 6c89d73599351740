"""Checkpoints that outlive the process: saving, keeping and resuming runs."""

from typing import TYPE_CHECKING

from ...engine.late import late
from .broken import BrokenCheckpoint
from .lookup import Checkpoints, checkpoints
from .retention import best, every, latest
from .saved import Saved

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .export import Export
else:
    __getattr__ = late(__name__, {"Checkpoint": ".checkpoint", "Export": ".export"})

__all__ = [
    "BrokenCheckpoint",
    "Checkpoint",
    "Checkpoints",
    "Export",
    "Saved",
    "best",
    "checkpoints",
    "every",
    "latest",
]


def __dir__() -> list[str]:
    return __all__

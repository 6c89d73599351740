"""The commands about checkpoints, for the command line: they print, and give an exit code."""

from .difference import checkpoint_differences, leaves_of, unequal
from .look import Claims, Finding, Findings, NoCheckpointError, is_checkpoint, look, saved_in
from .overview import export, inspect, verify
from .pruning import prune

__all__ = [
    "Claims",
    "Finding",
    "Findings",
    "NoCheckpointError",
    "checkpoint_differences",
    "export",
    "inspect",
    "is_checkpoint",
    "leaves_of",
    "look",
    "prune",
    "saved_in",
    "unequal",
    "verify",
]

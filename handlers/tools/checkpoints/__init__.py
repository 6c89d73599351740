"""The commands about checkpoints, for the command line: they print, and give an exit code."""

from .difference import checkpoint_differences
from .overview import export, inspect, verify
from .pruning import prune

__all__ = ["checkpoint_differences", "export", "inspect", "prune", "verify"]

"""The commands about checkpoints, for the command line: they print, and give an exit code."""

from .overview import export, inspect, verify
from .pruning import prune

__all__ = ["export", "inspect", "prune", "verify"]

"""The commands about checkpoints, for the command line: they print, and give an exit code."""

from .export import export
from .inspect import inspect
from .prune import prune
from .verify import verify

__all__ = ["export", "inspect", "prune", "verify"]

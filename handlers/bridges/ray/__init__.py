"""Ray: runs that Ray Train or Ray Tune has started report their metrics and checkpoints to it."""

from .report import RayReport

__all__ = ["RayReport"]

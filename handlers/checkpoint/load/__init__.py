"""Resuming a run: what differs from the script, and loading what fits."""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

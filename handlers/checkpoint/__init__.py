"""Checkpoints that outlive the process: saving, keeping and resuming runs."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)

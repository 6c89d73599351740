"""Stops of runs that are to be resumed: by a time limit, or by a signal."""

from .stop_after import StopAfter
from .stop_on_signal import StopOnSignal

__all__ = ["StopAfter", "StopOnSignal"]

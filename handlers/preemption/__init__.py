"""Stops of runs that are to go on later."""

from .stop_after import StopAfter
from .stop_on_signal import StopOnSignal

__all__ = ["StopAfter", "StopOnSignal"]

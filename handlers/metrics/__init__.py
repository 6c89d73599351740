"""Metrics: over an epoch, over a window, and over a whole run."""

from .average import Average
from .metrics import Metrics
from .totals import Totals

__all__ = ["Average", "Metrics", "Totals"]

"""Averages of a model's weights over a run."""

from .ema import EMA
from .swa import SWA

__all__ = ["EMA", "SWA"]

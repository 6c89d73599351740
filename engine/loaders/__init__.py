"""From data sets to loaders: batches, shares of ranks, samples of like length, padding."""

from .factory import loader
from .lengths import LengthBatches
from .padding import Padded

__all__ = ["LengthBatches", "Padded", "loader"]

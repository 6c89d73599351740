"""From data sets to loaders: batches, shares of ranks, samples of like length, padding."""

from .factory import loader
from .length_batches import LengthBatches
from .padding import Padded
from .seeded_samples import Placed, SeededSamples
from .shared_order import SharedOrder

__all__ = ["LengthBatches", "Padded", "Placed", "SeededSamples", "SharedOrder", "loader"]

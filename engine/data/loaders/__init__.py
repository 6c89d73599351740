"""From data sets to loaders: batches, shares of ranks, samples of like length, padding, packing."""

from .factory import inner_of, loader
from .packing import Packed
from .padding import Padded
from .samplers import LengthBatches, SharedOrder
from .seeded_samples import Placed, SeededSamples

__all__ = [
    "LengthBatches",
    "Packed",
    "Padded",
    "Placed",
    "SeededSamples",
    "SharedOrder",
    "inner_of",
    "loader",
]

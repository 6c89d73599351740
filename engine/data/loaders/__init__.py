"""From data sets to loaders: batches, ranks, mixtures, samples of like length, padding, packing."""

from .factory import inner_of, loader
from .mixture import Mixture
from .packing import Packed
from .padding import Padded
from .samplers import LengthBatches, SharedOrder
from .seeded_samples import Placed, SeededSamples

__all__ = [
    "LengthBatches",
    "Mixture",
    "Packed",
    "Padded",
    "Placed",
    "SeededSamples",
    "SharedOrder",
    "inner_of",
    "loader",
]

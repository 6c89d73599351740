"""From data sets to loaders: batches, shares of ranks, samples of like length, padding."""

from .factory import loader
from .mixture import Mixture
from .padding import Padded
from .samplers import LengthBatches, SharedOrder
from .seeded_samples import Placed, SeededSamples

__all__ = ["LengthBatches", "Mixture", "Padded", "Placed", "SeededSamples", "SharedOrder", "loader"]

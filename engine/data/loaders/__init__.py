"""From data sets to loaders: batches, ranks, mixtures, streams, like lengths, padding, packing."""

from .factory import inner_of, loader
from .mixture import Mixture
from .packing import Packed
from .padding import Padded
from .samplers import LengthBatches, SharedOrder
from .seeded_samples import Placed, SeededSamples
from .sharded_stream import ShardedStream, Taken

__all__ = [
    "LengthBatches",
    "Mixture",
    "Packed",
    "Padded",
    "Placed",
    "SeededSamples",
    "ShardedStream",
    "SharedOrder",
    "Taken",
    "inner_of",
    "loader",
]

"""Torch's `DataLoader`: read from any batch on, and in-memory data by one indexing call a batch."""

from .alike import shared_samples, warn_of_other_samples_on_ranks
from .loader import is_plain
from .orders import order_of
from .streams import source_of_loader
from .undealt import undealt_samples, warn_of_repeats, warn_of_undealt
from .undealt_streams import compared, is_stream

__all__ = [
    "compared",
    "is_plain",
    "is_stream",
    "order_of",
    "shared_samples",
    "source_of_loader",
    "undealt_samples",
    "warn_of_other_samples_on_ranks",
    "warn_of_repeats",
    "warn_of_undealt",
]

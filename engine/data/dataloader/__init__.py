"""Torch's `DataLoader`: read from any batch on, and in-memory data by one indexing call a batch."""

from .alike import shared_samples, warn_of_other_samples_on_ranks
from .loader import is_plain
from .orders import order_of
from .streams import source_of_loader
from .undealt import told_if_alike, undealt_samples, warn_of_repeats, warn_of_undealt

__all__ = [
    "is_plain",
    "order_of",
    "shared_samples",
    "source_of_loader",
    "told_if_alike",
    "undealt_samples",
    "warn_of_other_samples_on_ranks",
    "warn_of_repeats",
    "warn_of_undealt",
]

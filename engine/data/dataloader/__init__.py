"""Torch's `DataLoader`: read from any batch on, and from memory by one index a batch."""

from .loader import Loader, is_plain

__all__ = ["Loader", "is_plain"]

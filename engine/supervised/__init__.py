"""The engine of the usual case: a model, an optimizer and a loss function."""

from ..outputs import Output, count_next_tokens, count_tokens
from .check import PRECISIONS
from .device import Transfer, to_device, way_to
from .factory import supervised
from .nested import map_tensors
from .step import Supervised

__all__ = [
    "PRECISIONS",
    "Output",
    "Supervised",
    "Transfer",
    "count_next_tokens",
    "count_tokens",
    "map_tensors",
    "supervised",
    "to_device",
    "way_to",
]

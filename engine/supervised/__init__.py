"""The engine of the usual case: a model, an optimizer and a loss function."""

from ..outputs import Output
from .device import Transfer, to_device
from .factory import supervised
from .split import OUT_OF_MEMORY
from .tokens import count_next_tokens, count_tokens

__all__ = [
    "OUT_OF_MEMORY",
    "Output",
    "Transfer",
    "count_next_tokens",
    "count_tokens",
    "supervised",
    "to_device",
]

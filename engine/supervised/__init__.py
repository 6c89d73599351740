"""The engine of the usual case: a model, an optimizer and a loss function."""

from .device import Transfer, to_device
from .factory import supervised
from .split import OUT_OF_MEMORY, Output

__all__ = ["OUT_OF_MEMORY", "Output", "Transfer", "supervised", "to_device"]

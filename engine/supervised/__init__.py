"""The engine of the usual case: a model, an optimizer and a loss function."""

from .device import Transfer, to_device
from .factory import supervised
from .split import Output
from .step import Supervised

__all__ = ["Output", "Supervised", "Transfer", "supervised", "to_device"]

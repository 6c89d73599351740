"""Loggers: rows of metrics that are resumed with the run, without a missing or a double one."""

from .json_lines import JSONLines
from .tensorboard import TensorBoard

__all__ = ["JSONLines", "TensorBoard"]

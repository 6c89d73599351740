"""Finding settings: the learning rate, the batch size, and the trials of a sweep."""

from .find_batch_size import find_batch_size
from .find_lr import find_lr
from .lr_curve import LRCurve
from .optuna_pruning import OptunaPruning

__all__ = ["LRCurve", "OptunaPruning", "find_batch_size", "find_lr"]

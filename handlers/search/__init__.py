"""Finding settings: the learning rate and the batch size."""

from .find_batch_size import find_batch_size
from .find_lr import find_lr
from .lr_curve import LRCurve

__all__ = ["LRCurve", "find_batch_size", "find_lr"]

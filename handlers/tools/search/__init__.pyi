from .find_batch_size import find_batch_size as find_batch_size
from .find_lr import find_lr as find_lr
from .lr_curve import LRCurve as LRCurve
from .trial import as_before as as_before

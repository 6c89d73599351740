"""Handlers: what people attach to an engine. None imports another; each is a plain value."""

from .checkpoint import Checkpoint, best, checkpoints, every, latest
from .clip_grad import ClipGradNorm, ClipGradValue
from .early_stopping import EarlyStopping
from .loggers import JSONLines, TensorBoard
from .lr_schedule import LRSchedule
from .metrics import Metrics
from .progress_bar import ProgressBar
from .terminate_on_nan import TerminateOnNaN
from .validate import Validate

__all__ = [
    "Checkpoint",
    "ClipGradNorm",
    "ClipGradValue",
    "EarlyStopping",
    "JSONLines",
    "LRSchedule",
    "Metrics",
    "ProgressBar",
    "TensorBoard",
    "TerminateOnNaN",
    "Validate",
    "best",
    "checkpoints",
    "every",
    "latest",
]

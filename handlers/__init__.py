"""Handlers: what people attach to an engine. None imports another; each is a plain value."""

from .checkpoint import Checkpoint, Export, best, every, latest
from .clip_grad import ClipGradNorm, ClipGradValue
from .early_stopping import EarlyStopping
from .loggers import JSONLines, TensorBoard
from .lr_schedule import LRSchedule
from .metrics import Metrics
from .preemption import StopAfter, StopOnSignal
from .progress_bar import ProgressBar
from .terminate_on_nan import TerminateOnNaN
from .validate import Validate

__all__ = [
    "Checkpoint",
    "ClipGradNorm",
    "ClipGradValue",
    "EarlyStopping",
    "Export",
    "JSONLines",
    "LRSchedule",
    "Metrics",
    "ProgressBar",
    "StopAfter",
    "StopOnSignal",
    "TensorBoard",
    "TerminateOnNaN",
    "Validate",
    "best",
    "every",
    "latest",
]

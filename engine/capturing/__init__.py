"""Parts of a step that a device records once and launches again as a whole: CUDA graphs."""

from .gradients import Gradients
from .recorder import CUDA_GRAPHS, MANY, WARMING, CudaGraphs, Recorder, recorder_of
from .step import CapturedStep
from .told import Told, explained_recording

__all__ = [
    "CUDA_GRAPHS",
    "MANY",
    "WARMING",
    "CapturedStep",
    "CudaGraphs",
    "Gradients",
    "Recorder",
    "Told",
    "explained_recording",
    "recorder_of",
]

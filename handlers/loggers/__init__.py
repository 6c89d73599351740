"""Loggers: rows of what a run measures, none missing and none double after a resume.

A logger is a handler that makes a writer of rows when the run starts. Here are the loggers, the
protocol of a writer, and the media that a metric may be.
"""

from ..common import Embedding, Histogram, Image, PRCurve, Text
from .csv_file import CSV
from .history import History
from .images import ImageFiles, figure
from .json_lines import JSONLines
from .logger import Logger
from .rows import Row, Start, Writer
from .tensorboard import TensorBoard
from .trackers import Aim, ClearML, Comet, MLflow, SwanLab, Trackio, WandB

__all__ = [
    "CSV",
    "Aim",
    "ClearML",
    "Comet",
    "Embedding",
    "Histogram",
    "History",
    "Image",
    "ImageFiles",
    "JSONLines",
    "Logger",
    "MLflow",
    "PRCurve",
    "Row",
    "Start",
    "SwanLab",
    "TensorBoard",
    "Text",
    "Trackio",
    "WandB",
    "Writer",
    "figure",
]

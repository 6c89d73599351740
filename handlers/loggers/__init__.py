"""Loggers: rows of what a run measures, resumed with it, without a missing or a double one."""

from ..common.media import Embedding, Histogram, Image, PRCurve, Text
from .csv_file import CSV
from .figure import figure
from .image_files import ImageFiles
from .json_lines import JSONLines
from .logger import Logger
from .ml_flow import MLflow
from .rows import Row
from .swan_lab import SwanLab
from .tensorboard import TensorBoard
from .weights_and_biases import WandB
from .writer import Start, Writer

__all__ = [
    "CSV",
    "Embedding",
    "Histogram",
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
    "WandB",
    "Writer",
    "figure",
]

"""Trackers: services and local boards that get a run's rows by their own clients.

Each file knows one client, and imports it when a run starts.
"""

from .aim import Aim
from .clear_ml import ClearML
from .comet import Comet
from .ml_flow import MLflow
from .swan_lab import SwanLab
from .trackio import Trackio
from .weights_and_biases import WandB

__all__ = ["Aim", "ClearML", "Comet", "MLflow", "SwanLab", "Trackio", "WandB"]

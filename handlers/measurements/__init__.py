"""Measurements of speed, machine and weights, as metrics; garbage collection; logs of ranks."""

from .describe_model import describe_model
from .garbage_collection import GarbageCollection
from .rank_logs import RankLogs
from .system_use import SystemUse
from .throughput import Throughput
from .weight_norms import WeightNorms

__all__ = [
    "GarbageCollection",
    "RankLogs",
    "SystemUse",
    "Throughput",
    "WeightNorms",
    "describe_model",
]

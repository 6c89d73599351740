"""Handlers: what people attach to an engine. None imports another; each is a plain value."""

from typing import TYPE_CHECKING

from ..engine.late import late

if TYPE_CHECKING:
    from .averages import EMA, SWA
    from .checkpoint import Checkpoint, Export, best, checkpoints, every, latest
    from .clip_grad import ClipGradNorm, ClipGradValue
    from .collect import Collect
    from .console_lines import ConsoleLines
    from .early_stopping import EarlyStopping
    from .fine_tuning import Freeze, describe_groups, norms_and_biases, parameter_groups
    from .grad_norm import GradNorm
    from .journal import Journal
    from .loggers import (
        CSV,
        ImageFiles,
        JSONLines,
        Logger,
        MLflow,
        SwanLab,
        TensorBoard,
        WandB,
    )
    from .measurements import GarbageCollection, RankLogs, SystemUse, Throughput, WeightNorms
    from .metrics import Average, Metrics, Totals
    from .non_finite_guard import NonFiniteGuard
    from .preemption import StopAfter, StopOnSignal
    from .profile import Profile
    from .progress_bar import ProgressBar
    from .restore_best import RestoreBest
    from .schedules import LRSchedule
    from .time_handlers import TimeHandlers
    from .validate import Validate
else:
    __getattr__ = late(
        __name__,
        {
            "Average": ".metrics",
            "CSV": ".loggers",
            "Checkpoint": ".checkpoint",
            "ClipGradNorm": ".clip_grad",
            "ClipGradValue": ".clip_grad",
            "Collect": ".collect",
            "ConsoleLines": ".console_lines",
            "EMA": ".averages",
            "EarlyStopping": ".early_stopping",
            "Export": ".checkpoint",
            "Freeze": ".fine_tuning",
            "GarbageCollection": ".measurements",
            "GradNorm": ".grad_norm",
            "ImageFiles": ".loggers",
            "JSONLines": ".loggers",
            "Journal": ".journal",
            "LRSchedule": ".schedules",
            "Logger": ".loggers",
            "MLflow": ".loggers",
            "Metrics": ".metrics",
            "NonFiniteGuard": ".non_finite_guard",
            "Profile": ".profile",
            "ProgressBar": ".progress_bar",
            "RankLogs": ".measurements",
            "RestoreBest": ".restore_best",
            "SWA": ".averages",
            "StopAfter": ".preemption",
            "StopOnSignal": ".preemption",
            "SwanLab": ".loggers",
            "SystemUse": ".measurements",
            "TensorBoard": ".loggers",
            "Throughput": ".measurements",
            "TimeHandlers": ".time_handlers",
            "Totals": ".metrics",
            "Validate": ".validate",
            "WandB": ".loggers",
            "WeightNorms": ".measurements",
            "best": ".checkpoint",
            "checkpoints": ".checkpoint",
            "describe_groups": ".fine_tuning",
            "every": ".checkpoint",
            "latest": ".checkpoint",
            "norms_and_biases": ".fine_tuning",
            "parameter_groups": ".fine_tuning",
        },
    )

__all__ = [
    "CSV",
    "EMA",
    "SWA",
    "Average",
    "Checkpoint",
    "ClipGradNorm",
    "ClipGradValue",
    "Collect",
    "ConsoleLines",
    "EarlyStopping",
    "Export",
    "Freeze",
    "GarbageCollection",
    "GradNorm",
    "ImageFiles",
    "JSONLines",
    "Journal",
    "LRSchedule",
    "Logger",
    "MLflow",
    "Metrics",
    "NonFiniteGuard",
    "Profile",
    "ProgressBar",
    "RankLogs",
    "RestoreBest",
    "StopAfter",
    "StopOnSignal",
    "SwanLab",
    "SystemUse",
    "TensorBoard",
    "Throughput",
    "TimeHandlers",
    "Totals",
    "Validate",
    "WandB",
    "WeightNorms",
    "best",
    "checkpoints",
    "describe_groups",
    "every",
    "latest",
    "norms_and_biases",
    "parameter_groups",
]


def __dir__() -> list[str]:
    return __all__

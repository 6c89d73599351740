"""Resuming a run: what differs from the script, and loading what fits."""

from .apply import put_settings, replay, resume
from .check import memory_mismatches, mismatches, refusing, validate_objects, validate_run
from .dcp import load_dcp
from .evaluated import EvaluatesSaved
from .plan import Change, changes, schedules_to_replay
from .read import ReadOnce, SavedRun
from .settings import settings_of, settings_of_steps

__all__ = [
    "Change",
    "EvaluatesSaved",
    "ReadOnce",
    "SavedRun",
    "changes",
    "load_dcp",
    "memory_mismatches",
    "mismatches",
    "put_settings",
    "refusing",
    "replay",
    "resume",
    "schedules_to_replay",
    "settings_of",
    "settings_of_steps",
    "validate_objects",
    "validate_run",
]

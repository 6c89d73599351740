"""Resuming a run: choosing a checkpoint, what differs from the script, and loading what fits."""

from .apply import put_settings, replay, resume
from .check import memory_mismatches, mismatches, refusing, validate_objects, validate_run
from .choose import chosen
from .evaluated import EvaluatesSaved
from .plan import Fate, LoadPlan, schedules_to_replay
from .read import SavedRun
from .settings import Change, changes, settings_of, settings_of_steps

__all__ = [
    "Change",
    "EvaluatesSaved",
    "Fate",
    "LoadPlan",
    "SavedRun",
    "changes",
    "chosen",
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

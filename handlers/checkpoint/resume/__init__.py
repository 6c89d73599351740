"""Resuming a run: what differs between a checkpoint and a script, and loading what fits."""

from .choose import chosen
from .compare import Change, changes, memory_mismatches, mismatches
from .evaluated import EvaluatesSaved
from .replay import put_settings, replay, schedules_to_replay
from .resumption import resume
from .saved_run import SavedRun
from .settings import settings_of, settings_of_steps
from .validate import refusing, validate_objects, validate_run

__all__ = [
    "Change",
    "EvaluatesSaved",
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

"""Resuming a run: what differs from the script, and loading what fits."""

from .apply import OF_SCRIPT, groups_in, load_optimizer, put_settings, replay, resume
from .check import (
    form_mismatches,
    form_needed,
    has_groups,
    memory_mismatches,
    mismatches,
    refusing,
    reshapes,
    validate_run,
)
from .dcp import load_dcp
from .evaluated import EvaluatesSaved
from .plan import Change, changes, schedules_to_replay
from .read import ReadOnce, SavedRun
from .settings import settings_of, settings_of_steps

__all__ = [
    "OF_SCRIPT",
    "Change",
    "EvaluatesSaved",
    "ReadOnce",
    "SavedRun",
    "changes",
    "form_mismatches",
    "form_needed",
    "groups_in",
    "has_groups",
    "load_dcp",
    "load_optimizer",
    "memory_mismatches",
    "mismatches",
    "put_settings",
    "refusing",
    "replay",
    "reshapes",
    "resume",
    "schedules_to_replay",
    "settings_of",
    "settings_of_steps",
    "validate_run",
]

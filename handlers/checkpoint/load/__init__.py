"""Resuming a run: what differs from the script, and loading what fits."""

from .apply import put_settings, replay, resume
from .check import (
    form_mismatches,
    form_of,
    has_groups,
    memory_mismatches,
    mismatches,
    refusing,
    reshapes,
    validate_objects,
    validate_run,
)
from .dcp import load_dcp
from .evaluated import EvaluatesSaved
from .optimizers import groups_in, load_optimizer, state_of
from .plan import Change, changes, schedules_to_replay
from .read import ReadOnce, SavedRun
from .settings import settings_of, settings_of_steps

__all__ = [
    "Change",
    "EvaluatesSaved",
    "ReadOnce",
    "SavedRun",
    "changes",
    "form_mismatches",
    "form_of",
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
    "state_of",
    "validate_objects",
    "validate_run",
]

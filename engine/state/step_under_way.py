"""The optimizer step that a run is about to make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class StepUnderWay:
    """What the updates of a run write, and what the handlers of their events read."""

    optimizer: Any = None
    """The optimizer whose gradients are ready, or whose step was completed."""
    is_skipped: bool = False
    """True if a handler has asked to discard the gradients."""
    skipped_at: int = -1
    """The last iteration in which a step was skipped."""
    windows: dict[int, Any] = field(default_factory=dict)
    """The open accumulation windows, by the id of their `Update`."""

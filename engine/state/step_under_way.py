"""The optimizer step that a run is about to make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..capturing import CapturedStep
    from ..checks import GradientCheck
    from ..compiling import CompiledStep
    from ..update import Update
    from .state import State


@dataclass(slots=True, eq=False)
class StepUnderWay:
    """What the updates of a run write, and what the handlers of their events read."""

    optimizer: Any = None
    """The optimizer whose gradients are ready, or whose step was completed."""
    compiled: CompiledStep | CapturedStep | None = None
    """What takes the step in this optimizer's place, if its step is compiled."""
    is_skipped: bool | None = None
    """True if a handler has asked to discard the gradients; None where there are none to judge."""
    skipped_at: int = -1
    """The last iteration in which a step was skipped."""
    windows: dict[Update, Any] = field(default_factory=dict)
    """The open accumulation windows, each by its `Update`, which alone reads it."""
    gradients: GradientCheck | None = None
    """Checks, in the first iterations of a run, who changes gradients; None afterwards."""
    clocks: list[Update] = field(default_factory=list)
    """The updates that began in this run and whose steps are those of the run."""

    @property
    def is_open(self) -> bool:
        """True if an accumulation window is open: the gradients at hand are a part of a step."""
        return bool(self.windows)

    def close(self, state: State[Any, Any]) -> None:
        """Step with what the open windows hold, because no batch follows."""
        for update in list(self.windows):
            update.close(state)

    def overlaps(self, commit_points: int) -> bool:
        """True if several windows are open, over more commit points than all of them need."""
        return len(self.windows) > 1 and commit_points > sum(
            each.accumulate for each in self.windows
        )

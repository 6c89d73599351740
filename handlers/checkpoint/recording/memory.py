"""What a handler of checkpoints remembers of a run, in the checkpoints themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class CheckpointMemory:
    """What a handler remembers of a run, saved in its checkpoints."""

    broken: list[str] = field(default_factory=list)
    """Broken checkpoints: ignored by retention, never deleted."""
    warned: bool = False
    """True after the warning that a metric of a claim is missing."""
    override: list[str] = field(default_factory=list)
    reset: list[str] = field(default_factory=list)
    """The arguments of the last start: what `reset` names begins anew only once."""
    weights: dict[str, list[str]] = field(default_factory=dict)
    """By object, the weights that checkpoints hold, if frozen weights are left out."""

    buckets: dict[str, list[list[int]]] = field(default_factory=dict)
    """By model, the buckets in which more than two ranks add up its gradients under DDP."""

    def state_dict(self) -> dict[str, Any]:
        """The fields."""
        return vars(self).copy()

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """The saved fields; older checkpoints have fewer."""
        vars(self).update(saved)

"""What the manifest of a save says of the run, and what a handler remembers of its saves."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....engine import State, ranks
from ...common import scalars
from ..format import Keep, Manifest, installed_versions

logger = logging.getLogger("camshaft")


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


def manifest_of(state: State[Any, Any], reason: str, keep: Keep) -> Manifest:
    """The manifest of a save at this moment, without its number and its files."""
    # Claims name metrics by text, so a manifest holds only metrics whose names are text.
    metrics = {name: n for name, n in scalars(state.metrics).items() if isinstance(name, str)}
    return Manifest(
        iteration=state.iteration,
        step=state.step,
        epoch=state.epoch - state.control.in_epoch,
        reason=reason,
        metrics=metrics,
        written={name: state.metrics.written(name) for name in metrics},
        keep=repr(keep),
        world_size=ranks.world_size(),
        versions=installed_versions(),
    )


def with_reasons(text: str, reasons: list[str]) -> str:
    """A text of reasons, to which the new ones among these are added."""
    for reason in reasons:
        if f", {reason}, " not in f", {text}, ":
            text = f"{text}, {reason}" if text else reason
    return text


def warn_of_missing(state: State[Any, Any], keep: Keep, handler: object) -> None:
    """Warn once a run if the metric of a claim does not exist."""
    if not keep.bests or (state.epoch == 1 and state.control.in_epoch):  # its end may produce it
        return
    numbers = scalars(state.metrics)
    missing = sorted({best.metric for best in keep.bests} - numbers.keys())
    if missing and not (memory := state.recall(handler, CheckpointMemory)).warned:
        memory.warned = True
        logger.warning(
            "%r goes by %s, which no handler has produced so far; the metrics that are "
            "numbers are %s. A checkpoint without it is never best",
            keep,
            ", ".join(map(repr, missing)),
            ", ".join(map(repr, numbers)) or "none",
        )

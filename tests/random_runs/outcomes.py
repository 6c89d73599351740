"""What a run has left behind, and how that of another one differs from it."""

import json
import math
from dataclasses import dataclass

import numpy as np
import torch

from camshaft.engine.state import capture_generators

from .sources import Cursor

STARTS = {f"Events.{name}" for name in ("LOADING", "STARTED", "SAVING", "FAILED", "CLOSED")}
OF_ONE_PROCESS = {"passed", "run", "Checkpoint"} | STARTS
"""Seconds since a trigger fired; the name by which trackers know a run; events of a process;
what a checkpoint remembers of how it resumed."""


@dataclass
class Outcome:
    """Everything that a script can see after a run."""

    parts: dict
    batches: dict
    """By iteration, in this process: the batch, and the generators before its step."""

    @classmethod
    def of(cls, engine, data, state, place, batches):
        parts = {
            "objects": {name: each.state_dict() for name, each in engine.objects.items()},
            "state": _compared(state.state_dict()),
            "generators": capture_generators(data).state_dict(),
            "histories": [each.rows for each in engine.handlers.values() if hasattr(each, "rows")],
            "files": {
                path.name: path.read_bytes()
                for path in place.glob("rows.*")
                if path.suffix in {".jsonl", ".csv"}
            },
        }
        if isinstance(data, Cursor):  # torchdata's loader draws numbers to tell its state
            parts["data"] = data.state_dict()
        return cls(parts, batches)


def kept(place):
    """The checkpoints in a directory: where in the run each was saved, and why."""
    found = {}
    for path in sorted(place.glob("iteration-*")):
        manifest = json.loads((path / "manifest.json").read_text())
        found[path.name] = {n: manifest[n] for n in ("step", "epoch", "reason", "metrics")}
    return found


def difference(one, other, place=""):
    """The first place in which two values differ, or None; types count, and NaN is itself."""
    if type(one) is not type(other):
        return f"{place}: {type(one).__name__} {one!r:.60}, {type(other).__name__} {other!r:.60}"
    if isinstance(one, dict):
        if (names := one.keys() - OF_ONE_PROCESS) != other.keys() - OF_ONE_PROCESS:
            return f"{place}: names {sorted(map(str, names ^ other.keys()))} are on one side only"
        return _first(((name, one[name], other[name]) for name in names), place)
    if isinstance(one, list | tuple) and len(one) == len(other):
        if all(type(each) is int for each in one):
            return None if one == other else f"{place}: other whole numbers"
        return _first(zip(range(len(one)), one, other, strict=True), place)
    return None if _is_same(one, other) else f"{place}: {one!r:.300} and {other!r:.300}"


def _first(items, place):
    found = (difference(one, other, f"{place}/{name}") for name, one, other in items)
    return next((each for each in found if each is not None), None)


def _is_same(one, other):
    if isinstance(one, torch.Tensor):
        same = one.dtype == other.dtype and one.device == other.device
        return same and (torch.equal(one, other) or _bits(one) == _bits(other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return one == other


def _bits(tensor):
    return tuple(tensor.shape), tensor.detach().numpy().tobytes()


def _compared(state):
    """What has to be the same at the end.

    Changes are noted by a save, a horizon as an epoch begins; a checksum is of what this process
    has read.
    """
    memory = {
        name: {k: v for k, v in each.items() if k not in ("horizon", "said", "began")}
        if name.startswith("LRSchedule")
        else each
        for name, each in state["memory"].items()
    }
    position = state["position"] and state["position"] | {"mark": None}
    return state | {"changes": None, "memory": memory, "position": position}

"""Runs of a plan: the whole one, and one that is left again and again."""

import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from camshaft import Events
from camshaft.engine.state import capture_generators
from camshaft.handlers import checkpoints

from .moments import Killed, Moments
from .outcomes import Outcome, difference, kept

MOST = 12
"""Attempts at a run that is left again and again."""


@dataclass
class Story:
    """A run that was started as often as it took, and what it left."""

    outcome: Outcome | None = None
    again: Outcome | None = None
    """The same after the script of the finished run was started once more."""
    kept: dict = field(default_factory=dict)
    counts: Counter = field(default_factory=Counter)
    """The moments of the first attempt, by kind."""
    resumes: int = 0
    kills: Counter = field(default_factory=Counter)
    batches: list = field(default_factory=list)


def seed_all(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def attempt(plan, moments, story):
    """Start the script: resume what is there; the outcome, or None of a run that was left."""
    place = moments.place
    is_new = checkpoints(place).latest() is None
    seed_all(0 if is_new else 100 + story.resumes)
    story.resumes += not is_new
    engine, data, limits = plan.build(place)
    batches = {}

    def note(state):
        rng = capture_generators(data).state_dict()
        batches[state.iteration] = (state.batch, rng, state.epoch, state.epoch_length)

    engine.on(Events.ITERATION_STARTED)(note)
    story.batches.append(batches)
    try:
        with moments.watching(engine):
            state = engine.run(data, **limits)
    except Killed:
        return None
    if moments.is_left and moments.kill.at != "interrupt":
        return None  # the thread that writes was killed, and the run ended without noticing
    return state.is_interrupted, Outcome.of(engine, data, state, place, batches)


def tell(plan, root, kills=(), totals=None):
    """Run a plan to its end, leaving it at each of the kills, and start it once more."""
    story, place = Story(), root / "run"
    place.mkdir(parents=True)
    waiting = list(kills)
    for _ in range(MOST):
        kill = waiting.pop(0) if waiting else None
        moments = Moments(place, root / "left", kill, totals or Counter())
        found = attempt(plan, moments, story)
        story.counts = story.counts or moments.counts
        if moments.is_left:
            story.kills[f"{kill.at}{' torn' * kill.torn}"] += 1
            story.kills["inside a save"] += moments.is_saving
        if found is None:
            place.rename(root / str(len(story.batches)))
            moments.copy.rename(place)
        elif not found[0]:
            break
    story.outcome = found[1]
    story.kept = kept(place)
    seed_all(99)
    story.again = attempt(plan, Moments(place, root / "left"), story)[1]
    return story


def check(plan, kills):
    """Run a plan whole, and left at each of the kills: the same; return how the second one went."""
    shared = Path("/dev/shm")
    place = shared if shared.is_dir() else None
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as root:
        whole = tell(plan, Path(root, "whole"))
        parts = tell(plan, Path(root, "parts"), kills, whole.counts)
    difference = compare(whole, parts)
    assert difference is None, difference
    return parts


def compare(whole, parts):
    """The first difference between a whole run and one that was left, or None."""
    if parts.kills["interrupt"]:  # the first reason to stop stays, even if a limit is reached too
        parts.outcome.parts["state"]["stop_reason"] = whole.outcome.parts["state"]["stop_reason"]
    for number, batches in enumerate(parts.batches):
        for iteration, found in batches.items():
            told = difference(
                whole.batches[0].get(iteration), found, f"attempt {number}, iteration {iteration}"
            )
            if told is not None:
                return told
    return (
        differently_kept(whole.kept, parts)
        or difference(whole.outcome.parts, parts.outcome.parts, "at the end")
        or difference(whole.outcome.parts, whole.again.parts, "a whole run that is started again")
        or difference(whole.outcome.parts, parts.again.parts, "once more")
    )


def differently_kept(kept, parts):
    """What differs in the checkpoints at the end, or None.

    The save of an interruption is one more. After a kill between a save and the removal of what no
    claim keeps, one more stays until the next save, which may not come. A kill while a checkpoint
    takes the place of another leaves the other name, and a save may be asked for in two parts.
    """
    if parts.kills["interrupt"]:
        return None
    whole, found = by_iteration(kept), by_iteration(parts.kept)
    more = found.keys() - whole
    if len(more) > 1:
        return f"kept: {sorted(more)} too"
    return difference(whole, {name: found[name] for name in found.keys() - more}, "kept")


def by_iteration(kept):
    """Where in the run each checkpoint was saved, by its name without the number of its place."""
    return {
        name.partition(".")[0]: {what: saved[what] for what in ("step", "epoch", "metrics")}
        for name, saved in sorted(kept.items(), reverse=True)
    }

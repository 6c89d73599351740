"""Resuming a run from a checkpoint: compare both, then load all of it or nothing."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ....engine import State, ranks
from ...files import printable, printable_lines
from ..directory import Held, saved_at
from ..format import reading
from ..weights import load_weights
from .compare import has_groups
from .comparison import Comparison
from .replay import put_settings, replay, take_rates
from .saved_run import SavedRun

logger = logging.getLogger("camshaft")


def resume(
    state: State[Any, Any],
    path: Path,
    handler: str,
    *,
    held: Held | None = None,
    override: Sequence[str] = (),
    reset: Sequence[str] = (),
) -> None:
    """Load a checkpoint into a run, on all ranks; `handler` is the name of the one that loads.

    Tensors that `held` has in memory are not read again.

    Raises:
        BrokenCheckpoint: The checkpoint cannot be read.
        ValueError: The checkpoint does not fit the script; nothing is changed.
    """
    with ranks.on_all_ranks(f"read {path}"), reading(path):
        found = saved_at(path)
        saved = SavedRun.at(found, state.engine.objects, held.of(found) if held else None)
        earlier = saved.run["memory"].get(handler, {})
        comparison = Comparison(
            saved, state.engine, state.control.settings, override, reset, earlier
        )
        own = comparison.names()
    override_names, reset_names = (
        set[str]().union(*each) for each in zip(*ranks.gathered(own), strict=True)
    )
    with ranks.on_all_ranks(f"load {path}"), _naming(path):
        comparison.check(override_names, reset_names)
    with ranks.on_all_ranks(f"load {path}"), _naming(path):
        _report(comparison)
        load(comparison, state)


@contextmanager
def _naming(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(printable_lines(f"cannot load {path}: {error}")) from error


def load(comparison: Comparison, state: State[Any, Any]) -> None:
    """Load the saved states, except those that are replayed or begin anew.

    Raises:
        ValueError: A changed schedule is shorter than the run so far.
    """
    objects, saved, anew = comparison.engine.objects, comparison.saved.objects, comparison.anew
    courses = _courses(comparison)
    loaded = [name for name in saved if name in objects and name not in {*courses, *anew}]
    # Modules come last: if another object refuses its state, the model is unchanged.
    for name in sorted(loaded, key=lambda name: isinstance(objects[name], Module)):
        if isinstance(objects[name], Module):
            load_weights(objects[name], saved[name])
            load_weights(objects[name], comparison.saved.buffers.get(name, {}))
        elif not comparison.is_of_another_class(name):
            objects[name].load_state_dict(saved[name])
    for name in anew:
        if isinstance(objects.get(name), Optimizer) and has_groups(saved.get(name, ())):
            kept = [objects[each] for each in loaded]
            take_rates(objects[name], saved[name]["param_groups"], kept)
    put_settings(objects, comparison.changes)
    for name, course in courses.items():
        for group, driven in zip(objects[name].optimizer.param_groups, course, strict=True):
            group.update(driven)
    run = comparison.saved.run
    memory = {n: run["memory"][n] for n in run["memory"] if n not in comparison.forgotten}
    state.load_state_dict({**run, "memory": memory, "settings": comparison.settings})


def _courses(comparison: Comparison) -> dict[str, list[dict[str, Any]]]:
    """By schedule that is not loaded: the values that it set in each group."""
    objects, saved = comparison.engine.objects, comparison.saved.objects
    courses = {}
    for name in comparison.replayed:
        try:
            courses[name] = replay(objects[name], saved.get(name))
        except ValueError as error:
            raise ValueError(f"the changed schedule {name!r} cannot resume: {error}") from error
    for name in comparison.anew:
        if isinstance(objects.get(name), LRScheduler):
            courses[name] = replay(objects[name], None)
    return courses


def _report(comparison: Comparison) -> None:
    if ranks.rank() > 0:
        return
    changes, anew = comparison.changes, comparison.anew
    told = [each for each in changes if each.is_told and not comparison.accepts(each.name)]
    accepted = [str(each) for each in changes if each not in told]
    for name in comparison.lonely:
        if name not in anew and name in comparison.engine.objects:
            accepted.append(f"{name}: not in the checkpoint, stays as the script made it")
        elif name not in anew:
            accepted.append(f"{name}: not in the script, left out")
    dropped = [name for name in comparison.forgotten if name not in anew]
    accepted += [f"{name}: its saved memory is dropped" for name in dropped]
    said = {
        "the script trains in another way than the saved run": [*map(str, told)],
        "override, accepted as the script has it": accepted,
        "reset, begins anew": anew,
    }
    for what, lines in said.items():
        if lines:
            logger.warning("%s:\n  %s", what, "\n  ".join(map(printable, lines)))
    known = comparison.saved.run["handlers"]
    if new := [name for name in comparison.engine.attached if name not in known]:
        logger.info("handlers without a memory in the checkpoint: %s", ", ".join(new))

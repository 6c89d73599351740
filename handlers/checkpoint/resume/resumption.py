"""Resuming a run from a checkpoint: compare both, then load all of it or nothing."""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ....engine import RunningEngine, State, ranks
from ..directory import read_checkpoint, saved_at
from ..format import reading
from ..weights import load_weights
from .compare import Change, changes, is_of, memory_mismatches, mismatches
from .replay import put_settings, replay, schedules_to_replay, take_rates
from .saved_run import SavedRun
from .validate import refusing, validate_objects

logger = logging.getLogger("camshaft")


def resume(
    state: State[Any, Any],
    path: Path,
    handler: str,
    *,
    override: Sequence[str] = (),
    reset: Sequence[str] = (),
) -> None:
    """Load a checkpoint into a run, on all ranks; `handler` is the name of the one that loads.

    Raises:
        BrokenCheckpoint: The checkpoint cannot be read.
        ValueError: The checkpoint does not fit the script; nothing is changed.
    """
    with ranks.on_all_ranks(f"read {path}"), reading(path):
        saved = SavedRun.of(*read_checkpoint(saved_at(path)))
        earlier = saved.run["memory"].get(handler, {})
        resumption = Resumption(
            saved, state.engine, state.control.settings, override, reset, earlier
        )
        own = resumption.names()
    override_names, reset_names = (
        set[str]().union(*each) for each in zip(*ranks.gathered(own), strict=True)
    )
    with ranks.on_all_ranks(f"load {path}"), _naming(path):
        resumption.check(override_names, reset_names)
    with ranks.on_all_ranks(f"load {path}"), _naming(path):
        resumption.carry_out(state)


@contextmanager
def _naming(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"cannot load {path}: {error}") from error


@dataclass(frozen=True)
class Resumption:
    """The comparison of a checkpoint with a script, and the loading of what fits.

    `override` accepts differences by name: a changed setting is then the script's, and an object
    on one side only is left alone. What `reset` names is not loaded, once.
    """

    saved: SavedRun
    engine: RunningEngine
    settings: Mapping[str, Any]
    """The settings of the script, before anything was loaded."""
    override: Sequence[str] = ()
    reset: Sequence[str] = ()
    earlier: Mapping[str, Any] = field(default_factory=dict)
    """The `override` and the `reset` of the last resumption."""

    @cached_property
    def anew(self) -> list[str]:
        """The names of objects and handlers that begin anew, and have not done so before."""
        return [name for name in self.reset if name not in self.earlier.get("reset", ())]

    @cached_property
    def changes(self) -> list[Change]:
        """The settings that differ, without those of objects that begin anew."""
        found = changes(self.saved.run["settings"], self.settings)
        return [each for each in found if not self._begins_anew(each.name)]

    @cached_property
    def lonely(self) -> list[str]:
        """The objects on one side only."""
        return sorted(self.saved.objects.keys() ^ self.engine.objects.keys())

    @cached_property
    def unclaimed(self) -> list[str]:
        """The names in the saved memory without an attached handler."""
        return [name for name in self.saved.run["memory"] if not self.engine.has_name(name)]

    @cached_property
    def forgotten(self) -> list[str]:
        """The names in the saved memory that are not loaded."""
        # Another rank's memory may be of handlers that this rank does not have.
        lost = self.override if self.saved.is_own else self.unclaimed
        return [
            name
            for name in self.saved.run["memory"]
            if name in self.anew or (name in self.unclaimed and name in lost)
        ]

    @cached_property
    def replayed(self) -> list[str]:
        """The schedules that are not loaded, but stepped anew to where the saved ones were."""
        accepted = [each.name for each in self.changes if self._accepts(each.name)]
        accepted += [n for n in self.lonely if n in self.engine.objects and self._accepts(n)]
        return schedules_to_replay(self.engine.objects, accepted)

    def names(self) -> tuple[set[str], set[str]]:
        """The names that `override` can accept, and those that `reset` can."""
        settings = {*self.saved.run["settings"], *self.settings}
        objects = {*self.saved.objects, *self.engine.objects}
        handlers = {*self.saved.run["memory"], *self.engine.attached}
        earlier = (self.earlier.get(word, ()) for word in ("override", "reset"))
        override, reset = ({*objects, *handlers, *each} for each in earlier)
        return settings | override, reset

    def check(self, override: Collection[str], reset: Collection[str]) -> None:
        """Find all differences; the names are those of all ranks.

        Raises:
            ValueError: A difference is not accepted, or `override` or `reset` has an unknown name.
        """
        self._check_names(override, reset)
        with refusing("these objects"):
            refused = [
                each for each in self.changes if not (each.is_told or self._accepts(each.name))
            ]
            lines = [*self._mismatches(), *map(str, refused)]
            if not lines and (odd := validate_objects(*self._compared())):
                raise ValueError("it holds values that cannot be loaded:\n  " + "\n  ".join(odd))
        if not lines:
            return
        accept = [*self.lonely, *(n for n in self.unclaimed if n not in self.forgotten)]
        accept = [*accept, *(each.name for each in refused)]
        new = [name for name in accept if name not in self.override]
        advice = "Change the script back"
        if new:
            names = [*self.override, *new]
            advice += f", or accept the differences: Checkpoint(..., override={names})"
        raise ValueError("it does not fit this script:\n  " + "\n  ".join(lines) + f"\n{advice}")

    def _check_names(self, override: Collection[str], reset: Collection[str]) -> None:
        def listed(names: Iterable[str]) -> str:
            return ", ".join(sorted(names))

        if unknown := [o for o in self.override if not any(is_of(o, name) for name in override)]:
            raise ValueError(f"override={unknown!r}: unknown names; it can name {listed(override)}")
        if unknown := [name for name in self.reset if name not in reset]:
            raise ValueError(
                f"reset={unknown!r}: needs names of objects or handlers, which begin anew: "
                f"{listed(reset)}; to accept a changed setting, use override="
            )
        kept = {*self.saved.run["memory"]}.difference(self.unclaimed)
        if useless := [n for n in self.override if n in kept and n not in self.saved.objects]:
            raise ValueError(
                f"override={useless!r}: accepts what differs, and what handlers remember goes on; "
                f"to let them begin anew, write reset={useless!r}"
            )

    def carry_out(self, state: State[Any, Any]) -> None:
        """Load the checkpoint.

        Raises:
            ValueError: A changed schedule is shorter than the run so far.
        """
        objects, saved = self.engine.objects, self.saved.objects
        self._report()
        courses = {name: self._replay(name) for name in self.replayed}
        courses |= {
            name: replay(objects[name], None)
            for name in self.anew
            if isinstance(objects.get(name), LRScheduler)
        }
        left = {*courses, *self.anew}
        loaded = [name for name in saved if name in objects and name not in left]
        # Modules come last: if another object refuses its state, the model is unchanged.
        for name in sorted(loaded, key=lambda name: isinstance(objects[name], Module)):
            if isinstance(objects[name], Module):
                load_weights(objects[name], saved[name])
            elif not self._is_of_another_class(name):
                objects[name].load_state_dict(saved[name])
        for name in self.anew:
            if isinstance(objects.get(name), Optimizer) and name in saved:
                kept = [objects[each] for each in loaded]
                take_rates(objects[name], saved[name]["param_groups"], kept)
        put_settings(objects, self.changes)
        for name, course in courses.items():
            for group, driven in zip(objects[name].optimizer.param_groups, course, strict=True):
                group.update(driven)
        memory = self.saved.run["memory"]
        kept = {name: memory[name] for name in memory if name not in self.forgotten}
        state.load_state_dict({**self.saved.run, "memory": kept, "settings": self.settings})

    def _accepts(self, name: str) -> bool:
        return any(is_of(each, name) for each in self.override)

    def _compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The objects to load, and their saved states."""
        waived = {*self.replayed, *self.anew, *(n for n in self.lonely if n in self.override)}
        waived |= {
            n for n in self.engine.objects if self._is_of_another_class(n)
        }  # listed as a change
        own, saved = (
            {name: each[name] for name in each if name not in waived}
            for each in (self.engine.objects, self.saved.objects)
        )
        return own, saved

    def _begins_anew(self, setting: str) -> bool:
        """True if a setting is of an object that begins anew, and no schedule that goes on has it.

        A schedule that goes on has the rates of the checkpoint.
        """
        return any(is_of(name, setting) for name in self.anew) and {*self.anew}.issuperset(
            schedules_to_replay(self.engine.objects, [setting])
        )

    def _mismatches(self) -> list[str]:
        run = self.saved.run
        unclaimed = [name for name in self.unclaimed if name not in self.forgotten]
        new = [name for name in self.engine.attached if name not in run["handlers"]]
        return [
            *mismatches(*self._compared(), self.saved.frozen),
            *memory_mismatches(unclaimed, new),
        ]

    def _is_of_another_class(self, name: str) -> bool:
        """True for a schedule of another class, which cannot load the saved state."""
        return isinstance(self.engine.objects[name], LRScheduler) and any(
            each.name == f"{name}.class" for each in self.changes
        )

    def _replay(self, name: str) -> list[dict[str, Any]]:
        try:
            return replay(self.engine.objects[name], self.saved.objects.get(name))
        except ValueError as error:
            raise ValueError(f"the changed schedule {name!r} cannot resume: {error}") from error

    def _report(self) -> None:
        if ranks.rank() > 0:
            return
        told = [each for each in self.changes if each.is_told and not self._accepts(each.name)]
        if told:
            logger.warning(
                "the script trains in another way than the saved run:\n  %s",
                "\n  ".join(map(str, told)),
            )
        if self.anew:
            logger.warning("reset, begins anew: %s", ", ".join(self.anew))
        accepted = [str(each) for each in self.changes if each not in told]
        for name in self.lonely:
            if name in self.anew:
                continue
            if name in self.engine.objects:
                accepted.append(f"{name}: not in the checkpoint, stays as the script made it")
            else:
                accepted.append(f"{name}: not in the script, left out")
        dropped = [name for name in self.forgotten if name not in self.anew]
        accepted += [f"{name}: its saved memory is dropped" for name in dropped]
        if accepted:
            logger.warning("override, accepted as the script has it:\n  %s", "\n  ".join(accepted))
        known = self.saved.run["handlers"]
        if new := [name for name in self.engine.attached if name not in known]:
            logger.info("handlers without a memory in the checkpoint: %s", ", ".join(new))

"""The comparison of a checkpoint with a script, by what `override` and `reset` name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ....engine import Engine
from .compare import (
    Change,
    changes,
    has_groups,
    is_of,
    memory_mismatches,
    mismatches,
    of_another_class,
)
from .replay import schedules_of, schedules_to_replay
from .saved_run import SavedRun
from .validate import refusing, validate_objects


@dataclass(frozen=True)
class Comparison:
    """A comparison of a checkpoint with a script: what differs, is accepted, and is not loaded.

    `override` accepts differences by name: for a setting, the script's value counts, and an object
    on one side only is left alone. What `reset` names is not loaded, once: a name that the script
    had at its last start is ignored. A name that `override` had at that start stays valid, even if
    it is not needed any more.
    """

    saved: SavedRun
    engine: Engine[Any, Any]
    settings: Mapping[str, Any]
    """The settings of the script, before anything was loaded."""
    override: Sequence[str] = ()
    reset: Sequence[str] = ()
    earlier: Mapping[str, Any] = field(default_factory=dict)
    """The `override` and the `reset` of the last start."""

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
        # Another rank's memory may belong to handlers that this rank lacks.
        lost = self.override if self.saved.is_own else self.unclaimed
        return [
            name
            for name in self.saved.run["memory"]
            if name in self.anew or (name in self.unclaimed and name in lost)
        ]

    @cached_property
    def replayed(self) -> list[str]:
        """The schedules that are not loaded, but stepped from their beginning to the saved step."""
        accepted = [each.name for each in self.changes if self.accepts(each.name)]
        accepted += [n for n in self.lonely if n in self.engine.objects and self.accepts(n)]
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
                each for each in self.changes if not (each.is_told or self.accepts(each.name))
            ]
            lines = [*self._mismatches(), *map(str, refused)]
            if not lines and (odd := validate_objects(*self._compared())):
                raise ValueError("it holds values that cannot be loaded:\n  " + "\n  ".join(odd))
        if not lines:
            return
        accept = [*self.lonely, *(n for n in self.unclaimed if n not in self.forgotten)]
        accept = [*accept, *(each.name for each in refused)]
        replaced = of_another_class(*self._compared())
        accept = [name for name in accept if not any(is_of(each, name) for each in replaced)]
        new = [name for name in accept if name not in self.override]
        advice = "Change the script back"
        if replaced:
            advice += f", or let these begin anew: Checkpoint(..., reset={replaced})"
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
        known = {*self.saved.objects, *self.earlier.get("override", ())}  # or accepted before
        if useless := [name for name in self.override if name in kept.difference(known)]:
            raise ValueError(
                f"override={useless!r}: accepts what differs, and what handlers remember goes on; "
                f"to let them begin anew, write reset={useless!r}"
            )

    def accepts(self, name: str) -> bool:
        """True if `override` accepts what this setting or object is in the script."""
        return any(is_of(each, name) for each in self.override)

    def _compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The objects to load, and their saved states."""
        waived = {*self.replayed, *self.anew, *(n for n in self.lonely if n in self.override)}
        waived |= {
            n for n in self.engine.objects if self.is_of_another_class(n)
        }  # these are listed as changes
        own, saved = (
            {name: each[name] for name in each if name not in waived}
            for each in (self.engine.objects, self.saved.objects)
        )
        return own, saved

    def _begins_anew(self, setting: str) -> bool:
        """True if a setting is of an object that begins anew, and of no schedule that is loaded.

        A schedule that is loaded has the rates of the checkpoint.
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
            *self._other_groups(),
        ]

    def _other_groups(self) -> Iterator[str]:
        """A line for each optimizer that begins anew and does not fit a schedule that is loaded."""
        for name in self.anew:
            optimizer, saved = self.engine.objects.get(name), self.saved.objects.get(name)
            if not isinstance(optimizer, Optimizer) or saved is None or not has_groups(saved):
                continue
            own, there = len(optimizer.param_groups), len(saved["param_groups"])
            for schedule in schedules_of(self.engine.objects, optimizer):
                if own != there and schedule in self.saved.objects and schedule not in self.anew:
                    yield (
                        f"{name!r} begins anew with {own} groups, and its schedule {schedule!r} is "
                        f"of {there}: let it begin anew too, reset={[*self.reset, schedule]}"
                    )

    def is_of_another_class(self, name: str) -> bool:
        """True for a schedule of another class, which cannot load the saved state."""
        return isinstance(self.engine.objects[name], LRScheduler) and any(
            each.name == f"{name}.class" for each in self.changes
        )

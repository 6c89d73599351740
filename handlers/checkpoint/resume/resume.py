"""A checkpoint beside the script that is to go on from it: what differs, and what becomes of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch.nn import Module
from torch.optim.lr_scheduler import LRScheduler

from ....engine import ranks
from ....engine.state import RunningEngine, State
from ..snapshot import Content
from ..weights import load_weights
from .mismatch import memory_mismatches, mismatches
from .replay import put_settings, replay, schedules_to_replay
from .settings import Change, changes, is_of
from .validate import refusing, rehearse_objects

logger = logging.getLogger("camshaft")


@dataclass(frozen=True)
class Resumption:
    """All of a checkpoint is put back, in place, or nothing: what differs is found beforehand.

    What differs in its name or in its setting can be accepted, by `override`: then the script's
    setting counts, and what only one side has is left alone.
    """

    content: Content
    engine: RunningEngine
    settings: Mapping[str, Any]
    """The script's, before anything was loaded."""
    override: Sequence[str] = ()
    earlier: Sequence[str] = ()
    """The override of the resumption before: by it, handlers began anew already."""

    @cached_property
    def changes(self) -> list[Change]:
        """The settings that differ."""
        return changes(self.content.run["settings"], self.settings)

    @cached_property
    def lonely(self) -> list[str]:
        """The objects that only one side has."""
        return sorted(self.content.objects.keys() ^ self.engine.objects.keys())

    @cached_property
    def unclaimed(self) -> list[str]:
        """The handlers that remembered something and are not attached."""
        return [name for name in self.content.run["memory"] if not self.engine.has_name(name)]

    @cached_property
    def forgotten(self) -> list[str]:
        """Whose memory is not put back."""
        once = {name for name in self.override if name not in self.earlier}
        # Of another rank's memory, what is about that rank's own handlers is nobody's here.
        lost = self.override if self.content.is_own else self.unclaimed
        return [
            name
            for name in self.content.run["memory"]
            if name in once or (name in self.unclaimed and name in lost)
        ]

    @cached_property
    def replayed(self) -> list[str]:
        """The schedules that are not loaded, but stepped to where the saved ones were."""
        accepted = [each.name for each in self.changes if self._accepts(each.name)]
        accepted += [n for n in self.lonely if n in self.engine.objects and self._accepts(n)]
        return schedules_to_replay(self.engine.objects, accepted)

    def names(self) -> set[str]:
        """What `override` can name."""
        settings = {*self.content.run["settings"], *self.settings}
        objects = {*self.content.objects, *self.engine.objects}
        handlers = {*self.content.run["memory"], *self.engine.attached}
        return settings | objects | handlers | {*self.earlier}

    def check(self, names: Iterable[str]) -> None:
        """Compare all that can be compared; `names` are those of all ranks.

        Raises:
            ValueError: Something does not fit and is not accepted, or `override` names nothing.
        """
        names = sorted(names)
        if unknown := [o for o in self.override if not any(is_of(o, name) for name in names)]:
            raise ValueError(
                f"override={unknown!r}: nothing is called so; there are {', '.join(names)}"
            )
        with refusing("these objects"):
            refused = [each for each in self.changes if not self._accepts(each.name)]
            lines = [*self._mismatches(), *map(str, refused)]
            if not lines and (odd := rehearse_objects(*self._compared())):
                raise ValueError("it holds what cannot be loaded:\n  " + "\n  ".join(odd))
        if not lines:
            return
        accept = [*self.lonely, *(n for n in self.unclaimed if n not in self.forgotten)]
        accept = [*accept, *(each.name for each in refused)]
        new = [name for name in accept if name not in self.override]
        advice = "Put the script back to what it was"
        if new:
            names = [*self.override, *new]
            advice += f", or accept that it is not by Checkpoint(..., override={names})"
        raise ValueError("it does not fit this script:\n  " + "\n  ".join(lines) + f"\n{advice}")

    def carry_out(self, state: State[Any, Any]) -> None:
        """Put everything back.

        Raises:
            ValueError: A changed schedule is not as long as the run is already.
        """
        objects, saved = self.engine.objects, self.content.objects
        self._report()
        courses = {name: self._replay(name) for name in self.replayed}
        loaded = [name for name in saved if name in objects and name not in courses]
        # What was not looked at in every detail comes first: if it refuses, the model is as it was.
        for name in sorted(loaded, key=lambda name: isinstance(objects[name], Module)):
            if isinstance(objects[name], Module):
                load_weights(objects[name], saved[name])
            elif not self._is_of_another_class(name):
                objects[name].load_state_dict(saved[name])
        put_settings(objects, self.changes)
        for name, course in courses.items():
            for group, driven in zip(objects[name].optimizer.param_groups, course, strict=True):
                group.update(driven)
        memory = self.content.run["memory"]
        kept = {name: memory[name] for name in memory if name not in self.forgotten}
        state.load_state_dict({**self.content.run, "memory": kept, "settings": self.settings})

    def _accepts(self, name: str) -> bool:
        return any(is_of(each, name) for each in self.override)

    def _compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The objects that are loaded, and their saved states."""
        waived = {*self.replayed, *(n for n in self.lonely if n in self.override)}
        waived |= {n for n in self.engine.objects if self._is_of_another_class(n)}  # a change
        own, saved = (
            {name: each[name] for name in each if name not in waived}
            for each in (self.engine.objects, self.content.objects)
        )
        return own, saved

    def _mismatches(self) -> list[str]:
        run = self.content.run
        unclaimed = [name for name in self.unclaimed if name not in self.forgotten]
        new = [name for name in self.engine.attached if name not in run["handlers"]]
        return [*mismatches(*self._compared()), *memory_mismatches(unclaimed, new)]

    def _is_of_another_class(self, name: str) -> bool:
        """True of a schedule that can take nothing over of the one that was saved."""
        return isinstance(self.engine.objects[name], LRScheduler) and any(
            each.name == f"{name}.class" for each in self.changes
        )

    def _replay(self, name: str) -> list[dict[str, Any]]:
        try:
            return replay(self.engine.objects[name], self.content.objects.get(name))
        except ValueError as error:
            raise ValueError(f"the changed schedule {name!r} cannot go on: {error}") from error

    def _report(self) -> None:
        if ranks.rank() > 0:
            return
        accepted = [*map(str, self.changes)]
        for name in self.lonely:
            if name in self.engine.objects:
                accepted.append(f"{name}: not in the checkpoint, stays as the script made it")
            else:
                accepted.append(f"{name}: not in the script, left out")
        accepted += [f"{name}: what it remembered is dropped" for name in self.forgotten]
        if accepted:
            logger.warning("override, accepted as the script has it:\n  %s", "\n  ".join(accepted))
        known = self.content.run["handlers"]
        if new := [name for name in self.engine.attached if name not in known]:
            logger.info("new since the checkpoint, and begin with nothing: %s", ", ".join(new))

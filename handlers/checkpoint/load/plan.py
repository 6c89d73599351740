"""The fate of all that a run has when it resumes: one table that check, load and report read."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ....engine import Engine, listed
from ....engine.modules import moves
from ...common import DRIVEN, fields_of
from ..weights import has_groups
from .check import (
    counts_of_groups,
    form_needed,
    groups_to_add,
    mismatches,
    mismatches_of,
    one_sided,
    parameter_mismatches,
    refusing,
    reshapes,
)
from .read import SavedRun
from .settings import ACCUMULATE, EPOCH_LENGTH, LAYERS, PROCESS, SUPERVISED


@dataclass(frozen=True)
class Change:
    """A setting that differs from the checkpoint's.

    >>> print(Change("optimizer.lr", 0.1, 0.05))
    optimizer.lr: 0.1 in the checkpoint -> 0.05 in the script
    """

    name: str
    old: Any
    new: Any

    @property
    def is_reported(self) -> bool:
        """True if the change is only reported: a run may continue with another loss function."""
        last = self.name.rpartition(".")[2]
        return last in (ACCUMULATE, EPOCH_LENGTH, LAYERS) or is_of(SUPERVISED, self.name)

    @property
    def is_of_process(self) -> bool:
        """True if the script is as before, and what it runs on is not."""
        return is_of(PROCESS, self.name)

    def __str__(self) -> str:
        here = "here" if self.is_of_process else "in the script"
        old, new = self.old, self.new
        if isinstance(old, Mapping) and isinstance(new, Mapping):  # of many, those that differ
            new = {k: each for k, each in self.new.items() if not _equal(self.old.get(k), each)}
            old = {k: each for k, each in self.old.items() if not _equal(self.new.get(k), each)}
        return f"{self.name}: {old!r} in the checkpoint -> {new!r} {here}"


def changes(saved: Mapping[str, Any], own: Mapping[str, Any]) -> list[Change]:
    """The settings that differ; for names on one side only, see `mismatches`."""
    version = f"{PROCESS}.torch"
    is_same = saved.get(version) == own.get(version)  # another torch may write layers otherwise
    common = [n for n in own if n in saved and (is_same or not n.endswith(f".{LAYERS}"))]
    return [Change(n, saved[n], own[n]) for n in common if not _equal(saved[n], own[n])]


def is_of(name: str, setting: str) -> bool:
    """True if a name is that of a setting or of its object.

    >>> is_of("optimizer", "optimizer.lr"), is_of("optimizer.lr", "optimizer.lr_decay")
    (True, False)
    """
    return setting == name or setting.startswith(f"{name}.")


class Fate(Enum):
    """What happens to an object, a handler's memory, or a setting that differs."""

    LOAD = "goes on from the checkpoint"
    REPLAY = "a schedule: it is stepped from its beginning to where the run is"
    ANEW = "begins anew, as the script makes it"
    KEEP = "stays as the script made it"
    REPORT = "stays as the script made it, and is reported"
    HERE = "is as this process has it, and is reported"
    DROP = "is left out"
    REFUSE = "prevents the resume"


@dataclass(frozen=True)
class LoadPlan:
    """The fates of everything in a checkpoint or a script.

    `override` accepts differences by name: for a setting, the script's value counts, and an object
    on one side only is left alone. What `reset` names is not loaded, once: a name that the script
    had at its last start is ignored. A name that `override` had at that start stays valid, even if
    it is not needed any more.
    """

    saved: SavedRun
    engine: Engine[Any, Any]
    own_settings: Mapping[str, Any]
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
    def changes(self) -> dict[str, Change]:
        """The settings that differ, by name, without those of objects that begin anew."""
        found = changes(self.saved.run["settings"], self.own_settings)
        return {each.name: each for each in found if not self._begins_anew(each.name)}

    @cached_property
    def settings(self) -> dict[str, Fate]:
        """The fates of the settings that differ."""

        def fate(each: Change) -> Fate:
            if self._accepts(each.name):
                return Fate.KEEP
            if each.is_of_process:
                return Fate.HERE
            return Fate.REPORT if each.is_reported else Fate.REFUSE

        return {name: fate(each) for name, each in self.changes.items()}

    @cached_property
    def objects(self) -> dict[str, Fate]:
        """The fates of the objects of both sides."""
        own, saved = self.engine.objects, self.saved.objects
        accepted = with_fate(self.settings, Fate.KEEP)
        accepted += [name for name in own if name not in saved and self._accepts(name)]
        replayed = schedules_to_replay(own, accepted)

        def fate(name: str) -> Fate:
            if name in self.anew:
                return Fate.ANEW
            if name in replayed:
                return Fate.REPLAY
            if name in own and name in saved:
                # A schedule of another class is refused, or accepted, as a change of its class.
                is_other = isinstance(own[name], LRScheduler) and f"{name}.class" in self.changes
                return Fate.KEEP if is_other else Fate.LOAD
            if name not in self.override:
                return Fate.REFUSE
            return Fate.KEEP if name in own else Fate.DROP

        return {name: fate(name) for name in dict.fromkeys([*saved, *own])}

    @cached_property
    def memory(self) -> dict[str, Fate]:
        """The fates of what handlers remember, and of handlers that the saved run did not have."""

        def fate(name: str) -> Fate:
            if name in self.anew:
                return Fate.ANEW
            if name in self.engine.known:
                return Fate.LOAD
            # Another rank's memory may belong to handlers that this rank lacks.
            return Fate.DROP if name in self.override or not self.saved.is_own else Fate.REFUSE

        run = self.saved.run
        new = (name for name in self.engine.attached if name not in run["handlers"])
        return dict.fromkeys(new, Fate.KEEP) | {name: fate(name) for name in run["memory"]}

    def names(self) -> tuple[set[str], set[str]]:
        """The names that `override` can accept, and those that `reset` can."""
        settings = {*self.saved.run["settings"], *self.own_settings}
        objects = {*self.saved.objects, *self.engine.objects}
        handlers = {*self.saved.run["memory"], *self.engine.attached}
        earlier = (self.earlier.get(word, ()) for word in ("override", "reset"))
        override, reset = ({*objects, *handlers, *each} for each in earlier)
        return settings | override, reset

    def check(self, override: Collection[str], reset: Collection[str]) -> None:
        """Find everything that prevents the resume; the names come from all ranks."""
        self._check_names(override, reset)
        with refusing("these objects"):
            refused = with_fate(self.settings, Fate.REFUSE)
            lines = [*self._mismatches(), *(str(self.changes[name]) for name in refused)]
        if lines:
            self._refuse(lines, refused)

    def check_later(self) -> None:
        """Compare what was loaded first, and then the optimizers that did not fit before that."""
        lines = list[str]()
        with refusing("these objects"):
            for name in self.first:
                if form := form_needed(self.engine.objects[name], is_loaded=True):
                    lines += form.mismatches(name, self.saved.objects[name])
            own, saved = ({n: e[n] for n in self.later} for e in self._compared())
            lines += mismatches(own, saved, added=self.added)
        if lines:
            self._refuse(lines, [])

    def _refuse(self, lines: Sequence[str], refused: Sequence[str]) -> None:
        own, saved = self._compared()
        replaced = [
            name
            for name, each in own.items()
            if name in saved
            and isinstance(each, Optimizer | LRScheduler)
            and mismatches_of(name, each, saved[name], self.added.get(name, ()))
        ]
        replaced += [name for name in self._apart if name not in replaced]
        one_sided = sorted(self.saved.objects.keys() ^ self.engine.objects.keys())
        accept = [*one_sided, *with_fate(self.memory, Fate.REFUSE), *refused]
        accept = [name for name in accept if not any(is_of(each, name) for each in replaced)]
        new = [name for name in accept if name not in self.override]
        advice = "Change the script back"
        if replaced:
            advice += f", or let these begin anew: Checkpoint(..., reset={replaced})"
        if new:
            names = [*self.override, *new]
            advice += f", or accept the differences: Checkpoint(..., override={names})"
        raise ValueError("it does not fit this script:\n  " + "\n  ".join(lines) + f"\n{advice}")

    @cached_property
    def first(self) -> list[str]:
        """The objects that are loaded first: they may change the parameters of optimizers."""
        return [n for n in with_fate(self.objects, Fate.LOAD) if reshapes(self.engine.objects[n])]

    @cached_property
    def later(self) -> list[str]:
        """The optimizers that may fit only after the objects that are loaded first."""
        if not self.first:
            return []
        own, saved = self._compared()
        return [
            name
            for name, each in own.items()
            if isinstance(each, Optimizer) and name in saved
            if mismatches_of(name, each, saved[name])
        ]

    @property
    def added(self) -> dict[str, list[dict[str, Any]]]:
        """By optimizer: the groups that the saved run has added, and the optimizer does not have.

        None if the optimizer or a schedule of it does not go on as it was: a schedule begins from
        the groups that it finds.
        """
        own, saved, found = self.engine.objects, self.saved, dict[str, list[dict[str, Any]]]()
        going_on = {*with_fate(self.objects, Fate.LOAD)}
        for name, made in counts_of_groups({name: own[name] for name in going_on}).items():
            there = saved.objects[name]
            if not has_groups(there) or len(there["param_groups"]) <= made:
                continue
            schedules = (n for n, each in _schedules(own).items() if moves(each, own[name]))
            if (
                going_on.issuperset(schedules)
                and not any(is_of(name, setting) for setting in self.changes)
                and _groups_of(name, saved.run["settings"]) == _groups_of(name, self.own_settings)
            ):
                names = saved.parameters.get(name, {})
                found[name] = groups_to_add(made, there, names, own)
        return found

    def lines(self, fate: Fate) -> list[str]:
        """A line for each setting that has this fate."""
        return [str(self.changes[name]) for name in with_fate(self.settings, fate)]

    def report(self, here: Collection[str]) -> dict[str, list[str]]:
        """The accepted differences, by the message that reports them; `here`: of all ranks."""
        own = self.engine.objects
        accepted = self.lines(Fate.KEEP)
        for name in sorted(self.saved.objects.keys() ^ own.keys()):
            if name not in self.anew and name in own:
                accepted.append(f"{name}: not in the checkpoint, stays as the script made it")
            elif name not in self.anew:
                accepted.append(f"{name}: not in the script, left out")
        dropped = with_fate(self.memory, Fate.DROP)
        accepted += [f"{name}: its saved memory is dropped" for name in dropped]
        return {
            "the script trains in another way than the saved run": self.lines(Fate.REPORT),
            "numbers round in another way than in the saved run, so the last bits may differ": [
                *sorted(here)
            ],
            "override, accepted as the script has it": accepted,
            "reset, begins anew": self.anew,
        }

    def _check_names(self, override: Collection[str], reset: Collection[str]) -> None:
        if unknown := [o for o in self.override if not any(is_of(o, name) for name in override)]:
            raise ValueError(f"override={unknown!r}: unknown names; it can name {listed(override)}")
        if unknown := [name for name in self.reset if name not in reset]:
            raise ValueError(
                f"reset={unknown!r}: needs names of objects or handlers, which begin anew: "
                f"{listed(reset)}; to accept a changed setting, use override="
            )
        claimed = self.engine.known.intersection(self.saved.run["memory"])
        known = {*self.saved.objects, *self.earlier.get("override", ())}  # or accepted before
        if useless := [name for name in self.override if name in claimed.difference(known)]:
            raise ValueError(
                f"override={useless!r}: accepts what differs, and what handlers remember goes on; "
                f"to let them begin anew, write reset={useless!r}"
            )

    def _accepts(self, name: str) -> bool:
        """True if `override` accepts what this setting or object is in the script."""
        return any(is_of(each, name) for each in self.override)

    def _begins_anew(self, setting: str) -> bool:
        """True if a setting is of an object that begins anew, and of no schedule that is loaded.

        A schedule that is loaded has the rates of the checkpoint.
        """
        return any(is_of(name, setting) for name in self.anew) and {*self.anew}.issuperset(
            schedules_to_replay(self.engine.objects, [setting])
        )

    def _compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The script's and the saved objects that are loaded, or that prevent the resume."""
        names = with_fate(self.objects, Fate.LOAD, Fate.REFUSE)
        own, saved = (
            {name: each[name] for name in each if name in names}
            for each in (self.engine.objects, self.saved.objects)
        )
        return own, saved

    def _mismatches(self) -> list[str]:
        refused, new = (with_fate(self.memory, fate) for fate in (Fate.REFUSE, Fate.KEEP))
        return [
            *mismatches(*self._compared(), self.later, self.added),
            *(one_sided("handlers", "the script", new, refused) if refused else ()),
            *self._other_parameters(),
            *self._other_groups(),
            *(
                f"{name!r} had another state on each of {self.saved.of_ranks[name]} ranks: start "
                "as many"
                for name in self._apart
            ),
        ]

    @property
    def _apart(self) -> list[str]:
        """The objects that go on only on as many ranks as have saved them."""
        return [name for name in with_fate(self.objects, Fate.LOAD) if name in self.saved.of_ranks]

    def _other_parameters(self) -> Iterator[str]:
        """A line for each optimizer that is loaded and has other parameters than before."""
        objects = self.engine.objects
        for name in with_fate(self.objects, Fate.LOAD):
            if isinstance(each := objects[name], Optimizer):
                saved = self.saved.parameters.get(name, {})
                yield from parameter_mismatches(name, each, objects, saved)

    def _other_groups(self) -> Iterator[str]:
        """A line for each optimizer that begins anew and does not fit a schedule that is loaded."""
        for name in self.anew:
            optimizer, saved = self.engine.objects.get(name), self.saved.objects.get(name)
            if not isinstance(optimizer, Optimizer) or saved is None or not has_groups(saved):
                continue
            own, there = len(optimizer.param_groups), len(saved["param_groups"])
            for schedule, each in _schedules(self.engine.objects).items():
                is_loaded = schedule in self.saved.objects and schedule not in self.anew
                if own != there and moves(each, optimizer) and is_loaded:
                    yield (
                        f"{name!r} begins anew with {own} groups, and its schedule {schedule!r} is "
                        f"of {there}: let it begin anew too, reset={[*self.reset, schedule]}"
                    )


def _groups_of(name: str, settings: Mapping[str, Any]) -> set[str]:
    """The numbers of the groups that a script makes; one group alone has none."""
    own = (each.removeprefix(f"{name}.") for each in settings if is_of(name, each))
    return {number for number, _, rest in (each.partition(".") for each in own) if rest}


def with_fate(table: Mapping[str, Fate], *fates: Fate) -> list[str]:
    """The names that have one of these fates."""
    return [name for name, fate in table.items() if fate in fates]


def schedules_to_replay(objects: Mapping[str, Any], changed: Iterable[str]) -> list[str]:
    """The schedules that these changed settings or new objects affect.

    `ReduceLROnPlateau` is never replayed: it follows a metric.
    """
    changed = set(changed)
    found = []
    for name, scheduler in _schedules(objects).items():
        of_optimizer = [
            key
            for key, each in objects.items()
            if isinstance(each, Optimizer) and moves(scheduler, each)
        ]
        if isinstance(scheduler, ReduceLROnPlateau):
            continue
        if not any(is_of(name, key) or _moves(scheduler, key, of_optimizer) for key in changed):
            continue
        sharing = [
            other
            for other, each in _schedules(objects).items()
            if moves(scheduler, each.optimizer)
            and not {*fields_of(each)}.isdisjoint(fields_of(scheduler))
        ]
        if len(sharing) > 1:
            raise ValueError(
                f"{' and '.join(map(repr, sharing))} move the rates of one optimizer in an unknown "
                "order, so an override cannot change their settings; combine them into one, such "
                "as SequentialLR or ChainedScheduler"
            )
        found.append(name)
    return found


def _schedules(objects: Mapping[str, Any]) -> dict[str, LRScheduler]:
    return {name: each for name, each in objects.items() if isinstance(each, LRScheduler)}


def _moves(scheduler: LRScheduler, key: str, optimizers: list[str]) -> bool:
    """True for a setting of the schedule's optimizer that the schedule starts from."""
    fields = fields_of(scheduler)
    if fields == DRIVEN:
        fields = ("lr", "max_lr", "min_lr", "swa_lr", "base_momentum", "max_momentum")
    return key.rpartition(".")[2] in fields and any(is_of(name, key) for name in optimizers)


def _equal(a: Any, b: Any) -> bool:
    a = a.tolist() if isinstance(a, Tensor) else a
    b = b.tolist() if isinstance(b, Tensor) else b
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)

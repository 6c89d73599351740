"""What a run has changed of what its script made: saved with the run, put back, or told of."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Container, Generator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from io import IOBase
from operator import call, itemgetter
from typing import Any

from .. import modules
from ..events import Events
from ..explain import warn
from ..modules import HOOKS, OF_STEPS, OF_WEIGHTS
from ..signals import PACKAGE, is_by_user, package_of
from ..state import (
    GONE,
    LARGEST,
    MANY,
    TOO_LARGE,
    Mark,
    Named,
    State,
    assign,
    copy_of,
    devices_of,
    extent_of,
    is_any_array,
    is_plain_tensor,
    on_devices,
    packed,
    same_states,
    unpacked,
    walk,
)
from .held import address_of, addresses_in, numbers_in
from .inventory import ITEMS, Inventory, is_kept, is_kind_by_user, script_functions
from .reached import (
    DATA,
    FILLABLE,
    OF_DATA,
    OF_SET,
    called_by,
    is_only_filled,
    keys_of,
    mentions,
    trains,
)

logger: logging.Logger = logging.getLogger("camshaft")

GENERAL = (PACKAGE, "torch", "numpy")
"""Packages whose named tuples a script may keep."""
SAME = "="
"""How what stands for a list, dict or tensor begins that is at another place, too."""
ALL_HOOKS = {*HOOKS, *OF_STEPS, *OF_WEIGHTS}
OF_WORKERS = (f"{DATA}.dataset", f"{DATA}.collate_fn")
"""How the names of what workers copy begin."""


class Changes:
    """What differs, at a save, from what the script made before the run.

    What has changed of its inventory, and is in no `state_dict`, is saved with the run and put
    back. What cannot be put back, such as a hook, is told of at the save, and so are objects with a
    state that are not among the engine's objects.
    """

    def __init__(self, state: State[Any, Any]) -> None:
        self._state, self._warned = state, set[str]()
        self._inventory = Inventory(state)
        self._notes, self._settings = self._inventory.notes, self._inventory.settings
        self._parameters: set[int] = self._inventory.parameters
        self._records: dict[str, bool] = {}
        """By name: whether functions use this list, set or dict for nothing but to fill it."""
        self._has_copies = getattr(state.control.data, "persistent_workers", False) is True
        """True if persistent workers have copies of the data set."""
        self._keys: dict[str, set[str]] = {}
        """By the name of what no checkpoint holds: the keys by which a data set reads it."""
        self._tied, engine = self._ties(), state.engine
        started = {Events.STARTED: engine.signals[Events.STARTED]}
        self._starting: list[Any] = script_functions(engine.process, started)[1:]
        """The functions of STARTED that the script has attached."""
        earlier = state.control.noted
        self._carried: set[str] = set() if earlier is None else earlier.names()
        """What an earlier part of this run has changed already, in this process."""
        self._of_pass: dict[str, Any] = {}
        """The changed values of the data as the current pass began, as a checkpoint holds them."""
        self._made: dict[str, Any] = {}
        """By name: the script's own values of what was put back."""
        self._saved: dict[str, Any] = {}
        """What was put back, until STARTED."""
        self._started: dict[str, Any] = {}
        """The changed values as the run's first STARTED left them."""
        self._loaded: dict[str, dict[Any, Any]] = {}
        """By object: a few numbers of what a resume has loaded, until STARTED."""

    def names(self) -> set[str]:
        """The names of all changed values."""
        return self._carried | {name for name, *_ in self._notes.changed()}

    def look(self) -> None:
        """Store the changed values in the state, for a save; warn of what it cannot hold."""
        values, lost = self._found()
        if (tied := self._ties()) != self._tied:
            lost |= dict.fromkeys({*tied} ^ {*self._tied}, "other weights are tied")
        started = {name: each for name, each in self._started.items() if name in values}
        self._state.control.changes = {
            "values": values,
            "devices": devices_of(values) if values else {},
            "started": packed(started, self._settings, self._parameters),
            "of_pass": self._of_pass,
        }
        if said := ", ".join(f"{n} ({why})" for n, why in lost.items() if n not in self._warned):
            self._warned |= lost.keys()
            warn(
                f"the run has changed {said}, which a checkpoint does not hold and a resume does "
                "not put back, so that a resumed run is another run. Let a function of "
                "Events.STARTED make the change again where state.epoch says so, or make it before "
                "the run if it gives weights other names; or put an object whose state_dict() has "
                "it into engine.objects"
            )
        unsaved = self._inventory.unsaved
        if unsaved.noted or unsaved.iterators:
            places = self._notes.places(unsaved.iterators)
            unsaved.tell({name: place.read() for name, place in places.items()})

    def _found(self) -> tuple[dict[str, Any], dict[str, str]]:
        """By name: the changed values as a checkpoint holds them, and why it cannot hold others."""
        values, lost = dict[str, Any](), dict[str, str]()
        found = {name: (value, was) for name, value, was in self._notes.changed()}
        for name, place in self._notes.places(self._carried - found.keys()).items():
            found[name] = place.read(), GONE
        not_ours = self._not_ours(found) | self._of_caches(found) if found else ()
        first = dict[int, str]()
        for name, (value, was) in found.items():
            if name in not_ours:
                continue
            owner, _, key = name.rpartition(".")
            if key in ALL_HOOKS:
                hooks = getattr(self._notes.places([name])[name].read, "__self__", value) or {}
                if (was is None or value > was) and any(map(is_by_user, hooks.values())):
                    lost[owner] = "a hook more"
            elif key == "_modules":
                lost[owner] = f"{value} modules instead of {was}"
            elif key == "fp32_precision":  # scripts that ask in the older way could not any more
                lost[name] = f"{value} instead of {was}"
            elif OF_SET in name:
                lost[name] = "of an element of a set, which comes in another order: use a list"
            elif (made := self._inventory.name_of(value, name)) is not None:
                values[name] = Named(made)
            elif id(value) in first:
                values[name] = Named(f"{SAME}{first[id(value)]}")
            elif (why := _why_lost(name, value, was, self._parameters)) is None:
                try:
                    values[name] = packed(value, self._settings, self._parameters)
                    if hasattr(value, "copy") or is_plain_tensor(value):
                        first[id(value)] = name
                except KeyError:
                    lost[name] = "with keys or enums that are not known before the run"
            elif why and value is not self._state.batch and value is not self._state.output:
                lost[name] = why
            if self._has_copies and name.startswith(OF_WORKERS):
                lost[name] = "in this process alone; persistent workers read with what they began"
        return values, lost

    def put_back(self) -> None:
        """Assign the values that an earlier part of the run, in another process, had changed."""
        self._loaded = self._numbers()
        if not (saved := self._state.control.changes):
            return
        objects = self._state.engine.objects.values()
        moved = on_devices(saved["values"], saved["devices"], objects)
        saved = unpacked({**saved, "values": moved}, self._inventory.things)
        self._saved = saved["values"]
        others = {n: e.name for n, e in self._saved.items() if isinstance(e, Named)}
        same = {n: one[1:] for n, one in others.items() if one[:1] == SAME}
        self._saved |= {name: self._saved[first] for name, first in same.items()}
        for name, each in [*self._saved.items()]:
            if isinstance(each, Named) and each is not GONE:
                logger.warning("%s was %s, which is not in this script", name, each.name)
                del self._saved[name]
        places, shared = self._notes.places(self._saved), self._notes.shared(self._saved)
        if tensors := {n: now for n, p in places.items() if is_plain_tensor(now := p.read())}:
            weights = addresses_in(objects)  # such as the `weight` of torch's older spectral_norm
            shared |= {name for name, now in tensors.items() if address_of(now) in weights}
        for name in self._saved.keys() - places:  # no function of this script uses it
            logger.info("%s, which the run had changed, is not in this script", name)
        for name, place in places.items():
            if name.startswith(OF_DATA):
                self._made[name] = copy_of(place.read())
            assign(place, self._saved[name], is_shared=name in shared)
        for name in same.keys() & places:
            if same[name] in places:
                assign(places[name], places[same[name]].read(), is_shared=True)
        self._of_pass = dict(self._state.control.changes["of_pass"])
        self._started = dict(saved["started"])

    def start(self) -> None:
        """After STARTED: put back what a function has set again, as at the run's first start.

        What it sets to another value at each start, such as a time, stays.
        """
        if self._state.is_new:
            found = ((n, each) for n, each, _ in self._notes.changed() if extent_of(each))
            self._started = {name: copy_of(each, self._parameters) for name, each in found}
        for name, place in self._notes.places(self._saved).items():
            if name not in self._started or same_states(place.read(), self._started[name]):
                assign(place, self._saved[name])
        self._saved = {}
        loaded, self._loaded = self._loaded, {}
        if self._starting and not mentions(self._starting, "is_new"):
            self._warned |= self._found()[1].keys()  # what each process does, as a hook
        for name, now in self._numbers().items() if loaded else ():
            before = loaded[name]
            is_gone = not before.keys() <= now.keys()
            is_gone = is_gone and not modules.is_module(self._state.engine.objects[name])
            if is_gone or any(now[key] != before[key] for key in before.keys() & now.keys()):
                warn(
                    f"a function of Events.STARTED has changed {name!r} after it was loaded from "
                    f"{self._state.control.resumed_from}, so that this is another run. STARTED "
                    "comes in each process: write `if state.is_new:` above what only the first one "
                    "does, such as filling weights"
                )

    def _numbers(self) -> dict[str, dict[Any, Any]]:
        """By object: a few numbers of each tensor; of none if no function could change them."""
        engine = self._state.engine
        if not self._starting:
            return {}
        own = {n: each for n, each in engine.objects.items() if not modules.is_copy(each)}
        return {name: numbers_in(each) for name, each in own.items()}

    def begin_pass(self) -> None:
        """Note the values of the data with which a pass begins: its order is drawn from them."""
        self._of_pass = {}
        found = {n: (e, was) for n, e, was in self._notes.changed() if n.startswith(OF_DATA)}
        made_again = self._of_caches(found) if found else ()
        for name, (value, _) in found.items():
            if name not in made_again:
                if (made := self._inventory.name_of(value, name)) is not None:
                    self._of_pass[name] = Named(made)
                elif extent_of(value):
                    self._of_pass[name] = packed(value, self._settings, self._parameters)

    @contextmanager
    def as_the_pass_began(self) -> Generator[None, None, None]:
        """Within a `with` block, the data has the values with which the saved pass began."""
        began = self._made | unpacked(self._of_pass, self._inventory.things)
        places = self._notes.places(began)
        now = {name: copy_of(place.read()) for name, place in places.items()}
        try:
            for name, place in places.items():
                assign(place, began[name])
            yield
        finally:
            for name, place in places.items():
                assign(place, now[name])

    @property
    def unsaved(self) -> dict[str, Any]:
        """By expression: the objects with a state that a script uses, and no checkpoint holds."""
        return {name: each for name, (each, _) in self._inventory.unsaved.noted.items()}

    @contextmanager
    def kept(self) -> Generator[list[str], None, None]:
        """Within a `with` block, the run may change its values; afterwards they are as before.

        Gives a list: behind the block, it has the names of what cannot be put back, such as a large
        tensor or a hook.
        """
        changed, lost = {name for name, *_ in self._notes.changed()}, list[str]()
        before = self._notes.copies(changed)
        yield lost
        changed |= {name for name, *_ in self._notes.changed()}
        for name, place in self._notes.places(changed).items():
            if (was := before.get(name, GONE)) is None and isinstance(place.read(), IOBase):
                continue  # a file that is opened when it is first read
            if was is not TOO_LARGE:
                assign(place, was)
            if not same_states(place.read(), was):
                lost.append(name)

    @contextmanager
    def taken_back(self) -> Generator[None, None, None]:
        """Within a `with` block, the run may change its values; afterwards they are as before.

        Raises:
            RuntimeError: It has changed what cannot be put back.
        """
        with self.kept() as lost:
            yield
        if lost:
            raise RuntimeError(f"the run has changed {', '.join(lost)}, which cannot be put back")

    def _ties(self) -> list[str]:
        """The places of parameters that are also at another place, each with the first one."""
        now = [*map(call, map(itemgetter(1), self._inventory.weights))]
        if len({*map(id, now)}) == len(now):  # no calls, since there may be thousands
            return []
        first, found = dict[int, str](), list[str]()
        for (name, _), each in zip(self._inventory.weights, now, strict=True):
            if each is not None and (one := first.setdefault(id(each), name)) != name:
                found.append(f"{one} and {name}")
        return found

    def _of_caches(self, found: Mapping[str, tuple[Any, Any]]) -> set[str]:
        """The names of what a data set reads again, by a key, and of these keys.

        With its key put back, and without what was read by it, the data set would find it read. A
        step may do more by such a key, so that its keys are put back.
        """
        names = set[str]()
        for name, (value, was) in found.items():
            is_new = name.startswith(OF_DATA) and name not in self._keys
            is_new = is_new and (was is None or was is GONE)
            if is_new and _why_lost(name, value, was, self._parameters) is not None:
                owner, dot, key = name.rpartition(".")
                keys = keys_of(key, called_by(self._inventory.functions))
                self._keys[name] = {f"{owner}{dot}{each}" for each in keys}
            if of_name := self._keys.get(name):
                names |= {name, *of_name}
        return names

    def _not_ours(self, found: Mapping[str, tuple[Any, Any]]) -> set[str]:
        """The names among these of what is saved elsewhere, made anew, or a record of a process."""
        engine = self._state.engine
        owners: list[Any] = [e for e in engine.handlers.values() if hasattr(e, "owned")]
        names = {self._settings.get(id(e)) for own in owners for e in own.owned(self._state)}
        named = self._settings.keys() & self._parameters  # a checkpoint has their names
        tensors = {
            n: {address_of(e) for _, e in walk(v) if is_plain_tensor(e) and id(e) not in named}
            for n, (v, _) in found.items()
            if is_plain_tensor(v) or (extent_of(v) or (0, 0))[1] > LARGEST  # such as a state_dict
        }
        saved = addresses_in(engine.objects.values()) if any(tensors.values()) else set()
        names |= {name for name, addresses in tensors.items() if addresses and addresses <= saved}
        known = self._records
        kinds = {n: FILLABLE if n[-3:] != ITEMS else tuple for n in found.keys() - known}
        new = [n for n, each in kinds.items() if isinstance(found[n][0], each)]
        codes = called_by(self._inventory.functions) if new else ()
        for name in new:
            # By all its names; by its own alone too, as an identity may be given out again.
            own = name.removesuffix(ITEMS)
            thing = self._inventory.things.get(own, found[name][0])
            names_of = [own], [own, *self._inventory.names.get(id(thing), ())]
            known[name] = all(is_only_filled(each, codes) for each in names_of)
        return found.keys() & (names | {name for name in found if known.get(name)})


def _why_lost(name: str, value: Any, was: Any, held: Container[int]) -> str | None:
    """Why a checkpoint cannot hold a changed value: None if it can, empty if it need not."""
    if value is GONE:
        return None
    if type(value) is Mark:
        return "of a class that no checkpoint holds"
    if (weight := extent_of(value, held)) is not None:
        count, size = weight
        if count <= MANY and size <= LARGEST:
            arrays = (each.dtype for _, each in walk(value) if is_any_array(each))
            others = [each for each in arrays if each.kind not in "biufc"]
            return f"an array of {others[0]}" if others else None
        if is_plain_tensor(value) and value.grad_fn is not None:  # of one batch
            return ""
        why = f"{size:,} bytes" if size > LARGEST else f"{count:,} values"
        return f"{why}; of a cache, nothing is lost" if isinstance(value, dict) else why
    if type(value).__module__.startswith("torch.utils.data") and not name.startswith(OF_DATA):
        return ""  # an evaluation may have a new loader each time
    is_forward = name.endswith(".forward") and is_by_user(value)
    is_other = was is not GONE and was is not None and is_kept(value)
    if trains(type(value)) or is_forward or is_other:
        return f"now another {type(value).__name__}"
    if name.startswith(OF_DATA):  # samples that it has read
        return ""
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list | tuple | deque) or hasattr(value, "_fields"):
        own = getattr(value, "__dict__", {}).values()
        is_record = hasattr(value, "_fields") or is_dataclass(value)
        inner = [value] if is_record or any(map(is_plain_tensor, own)) else []
    kinds = dict.fromkeys(type(each).__name__ for each in inner if _has_numbers(each))
    return f"with {' and '.join(kinds)}: use plain tuples or dicts" if kinds else ""


def _has_numbers(thing: Any) -> bool:
    """True for an object of the script's own, or a named tuple, that holds only values.

    A library keeps named tuples of its own of what it has drawn last, as kornia does.
    """
    if not (is_kind_by_user(type(thing)) or package_of(type(thing)) in GENERAL):
        return False
    if hasattr(thing, "_fields"):
        return isinstance(thing, tuple) and extent_of([*thing]) is not None
    own = getattr(thing, "__dict__", {}).values()
    return bool(own) and extent_of([*own]) is not None

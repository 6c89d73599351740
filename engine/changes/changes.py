"""What a run has changed of what its script made: saved with the run, put back, or told of."""

from __future__ import annotations

import logging
import re
import sys
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from functools import partial
from io import IOBase
from itertools import chain
from operator import attrgetter, call, itemgetter
from types import FunctionType, GeneratorType, MethodType, SimpleNamespace
from typing import Any

from .. import modules
from ..explain import warn
from ..modules import HOOKS
from ..signals import PACKAGE, Subscription, is_by_user, package_of
from ..state import (
    CONTAINERS,
    GONE,
    LARGEST,
    MANY,
    TOO_LARGE,
    SettingsNoted,
    Spot,
    State,
    assign,
    copy_of,
    devices_of,
    extent_of,
    has_state,
    is_kind_of_generator,
    is_plain_tensor,
    on_devices,
    once_a_type,
    packed,
    same_states,
    unpacked,
    walk,
)
from .reached import (
    FILLABLE,
    PLAIN,
    attributes_of,
    functions_of,
    is_kind_of_update,
    is_of_the_script,
    is_only_filled,
    readers_of,
    search,
    trains,
)

logger: logging.Logger = logging.getLogger("camshaft")

SAMPLES = 8
"""How many numbers of each tensor are compared; a write by `.data` does not raise the version."""
DATA = "data"
"""The name of a run's data in expressions."""
OF_DATA = (f"{DATA}.", f"{DATA}[")
"""How the names of its parts begin: a variable of the script may be called `data_size`."""
OF_WORKERS = (f"{DATA}.dataset", f"{DATA}.collate_fn")
"""How the names of what workers copy begin."""
OF_MODULES = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", *HOOKS}
"""Attributes of a module that are noted by what they hold, or are in its `state_dict`."""
OF_OPTIMIZERS = {"state", "param_groups", "defaults"}
HOLDERS = (FunctionType, dict, type, SimpleNamespace, Namespace)
COMPUTES = (FunctionType, MethodType, partial)
Roots = list[tuple[str, Any]]


class Changes:
    """What differs, at a save, from what the script made before the run.

    It notes the settings and small values of all that a run can reach. What has changed, and is in
    no `state_dict`, is saved with the run and put back. What cannot be put back, such as a hook, is
    told of at the save, and so are objects with a state that are not among the engine's objects.
    """

    def __init__(self, state: State[Any, Any]) -> None:
        self._state, self._saves, self._warned = state, 0, set[str]()
        self._notes = SettingsNoted()
        self._whole: set[int] = set()
        """Containers that are noted as one value, and parts of the data that the position saves."""
        self._settings: dict[int, str] = {}
        """By module and parameter: the name of its mode, or of whether it requires a gradient."""
        self._things: dict[str, Any] = {}
        """Modules and parameters by these names."""
        self._weights: list[tuple[str, Callable[[], Any]]] = []
        """By place: how to read the parameter that is there now."""
        self._functions: list[Any] = []
        self._records: dict[str, bool] = {}
        """By name: whether functions use this list, set or dict for nothing but to fill it."""
        self._unsaved: dict[str, tuple[Any, Any]] = {}
        """By expression: objects with a state that no checkpoint holds, and its fingerprint."""
        self._drawn: dict[str, bool] = {}
        """By name: places of iterators, and whether there is one as the run begins."""
        self._names: dict[int, set[str]] = {}
        """By identity: all names of a list, set or dict."""
        self._has_copies = getattr(state.control.data, "persistent_workers", False) is True
        """True if persistent workers have copies of the data set."""
        self._known = _known(state)
        roots = [*self._roots()]
        for found in search(roots, _is_kind_of_leaf, self._is_leaf, self._names):
            if found.name and id(found.owner) not in self._whole:
                self._note(*found)
        self._tied = self._ties()
        earlier = state.control.noted
        self._carried: set[str] = set() if earlier is None else earlier.names()
        """What an earlier part of this run has changed already, in this process."""
        self._of_pass: dict[str, Any] = {}
        """The changed values of the data as the current pass began."""
        self._made: dict[str, Any] = {}
        """By name: the script's own values of what was put back."""
        self._saved: dict[str, Any] = {}
        """What was put back, until STARTED."""
        self._started: dict[str, Any] = {}
        """The changed values as the run's first STARTED left them."""

    def names(self) -> set[str]:
        """The names of all changed values."""
        return self._carried | {name for name, *_ in self._notes.changed()}

    def look(self) -> None:
        """Store the changed values in the state, for a save; warn of what it cannot hold."""
        values, lost = dict[str, Any](), dict[str, str]()
        found = {name: (value, was) for name, value, was in self._notes.changed()}
        for name, place in self._notes.places(self._carried - found.keys()).items():
            found[name] = place.read(), GONE
        not_ours = self._not_ours(found) if found else ()
        for name, (value, was) in found.items():
            if name in not_ours:
                continue
            owner, _, key = name.rpartition(".")
            if key in HOOKS:
                hooks = getattr(self._notes.places([name])[name].read, "__self__", {})
                if value > was and any(map(is_by_user, hooks.values())):
                    lost[owner] = "a hook more"
            elif key == "_modules":
                lost[owner] = f"{value} modules instead of {was}"
            elif (why := _why_lost(name, value, was)) is None:
                try:
                    values[name] = packed(value, self._settings)
                except KeyError:
                    lost[name] = "by keys that are no weights or modules of engine.objects"
            elif why and value is not self._state.batch and value is not self._state.output:
                lost[name] = why
            if self._has_copies and name.startswith(OF_WORKERS):
                lost[name] = "in this process alone; persistent workers read with what they began"
        if (tied := self._ties()) != self._tied:
            lost |= dict.fromkeys({*tied} ^ {*self._tied}, "other weights are tied")
        started = {name: each for name, each in self._started.items() if name in values}
        self._state.control.changes = {
            "values": values,
            "devices": devices_of(values) if values else {},
            "started": packed(started, self._settings),
            "of_pass": packed(self._of_pass, self._settings),
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
        self._tell_of_drawn()
        self._saves += 1
        # At the first save, the second, the fourth and so on.
        if self._unsaved and not self._saves & (self._saves - 1):
            self._tell_of_unsaved()

    def put_back(self) -> None:
        """Assign the values that an earlier part of the run, in another process, had changed."""
        if not (saved := self._state.control.changes):
            return
        objects = self._state.engine.objects.values()
        moved = on_devices(saved["values"], saved["devices"], objects)
        saved = unpacked({**saved, "values": moved}, self._things)
        self._saved = saved["values"]
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
        self._of_pass, self._started = dict(saved["of_pass"]), dict(saved["started"])

    def start(self) -> None:
        """After STARTED: put back what a function has set again, as at the run's first start.

        What it sets to another value at each start, such as a time, stays.
        """
        if self._state.is_new:
            found = ((name, value) for name, value, _ in self._notes.changed())
            self._started = {name: copy_of(each) for name, each in found if extent_of(each)}
        for name, place in self._notes.places(self._saved).items():
            if name not in self._started or same_states(place.read(), self._started[name]):
                assign(place, self._saved[name])
        self._saved = {}

    def begin_pass(self) -> None:
        """Note the values of the data with which a pass begins: its order is drawn from them."""
        self._of_pass = {
            name: copy_of(value)
            for name, value, _ in self._notes.changed()
            if name.startswith(OF_DATA) and extent_of(value)
        }

    @contextmanager
    def as_the_pass_began(self) -> Generator[None, None, None]:
        """Within a `with` block, the data has the values with which the saved pass began."""
        began = self._made | self._of_pass
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
        return {name: each for name, (each, _) in self._unsaved.items()}

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

    def _roots(self) -> Iterator[tuple[str, Any]]:
        """Note the engine's modules and optimizers; give the roots of the search for all others."""
        engine, data = self._state.engine, self._state.control.data
        for name, each in engine.objects.items():
            for outer in modules.modules_of(each):
                if id(outer) in self._known:
                    yield from self._note_model(name, outer)
            yield name, each
            self._functions += _called_by(each)
        hooks = [each for each in modules.hooks_of(engine.objects) if is_by_user(each)]
        yield from functions_of(hooks)
        self._functions += [*hooks, *readers_of(data)]
        for name, each in _parts_of(data):
            if has_state(each) and (name == DATA or id(each) in self._known):
                self._whole.add(id(each))
                continue
            is_choice = not hasattr(each, "dataset") or hasattr(each, "indices")
            if type(each).__module__.startswith("torch.utils") and is_choice:
                self._note_own(name, each)  # such as the weights of a sampler
            yield name, each
        for one in filter(None, (engine, vars(engine).get("evaluation"))):
            functions = script_functions(one.process, one.signals)
            self._functions += [*functions, *_called_by(getattr(one.process, "__self__", None))]
            yield from functions_of(functions)
        for name, each in engine.handlers.items():
            self._functions += _called_by(each)
            own = getattr(each, "__dict__", {})
            if is_kind_of_update(type(each)):
                self._notes.note_key(f"{name}.accumulate", own["accumulate"], own, "accumulate")
            if is_by_user(type(each)):
                yield name, each
            else:  # its trackers and meters follow the world, and not the run
                for key, one in own.items():
                    if isinstance(one, COMPUTES) or modules.is_kind_of_module(type(one)):
                        yield f"{name}.{key}", one

    def _is_leaf(self, thing: Any) -> bool:
        """True for what is noted as one value, or warned of."""
        return id(thing) in self._whole or self._is_unsaved(thing)

    def _is_unsaved(self, thing: Any) -> bool:
        """True for an object with a state that is not saved, nor is anything that it holds."""
        if not is_stateful(type(thing)) or id(thing) in self._known:
            return False
        if modules.is_module(thing):
            return any(id(each) not in self._known for each in thing.parameters())
        return not any(id(each) in self._known for each in _attributes(thing))

    def _note(self, name: str, value: Any, owner: Any, holder: Any, key: Any) -> None:
        """Note what a search has found: the value of a name, and what the value itself holds."""
        is_value = isinstance(value, PLAIN) or extent_of(value) is not None
        if is_value and type(value) in CONTAINERS:
            self._whole.add(id(value))
        if holder is None:
            if is_value and not isinstance(value, PLAIN):
                self._notes.note(name, value)
        # Of the script's own, or of what has a state and holds what is saved.
        elif (is_value or _is_kept(value)) and (
            is_noted(owner) or (is_stateful(type(owner)) and id(owner) not in self._known)
        ):
            self._notes.note_key(name, value, holder, key)
        is_drawn = _is_kind_of_iterator(type(value)) and value is not self._state.control.data
        is_ours = holder is not None and is_noted(owner) and id(owner) not in self._known
        if (value is None or is_drawn) and is_ours and not name.startswith(OF_DATA):
            self._notes.note_key(name, value, holder, key)
            self._drawn[name] = is_drawn
        if is_value or isinstance(value, (type, FunctionType)):
            return
        if self._is_unsaved(value):
            self._unsaved[name] = value, _fingerprint(value, self._known)
            if modules.is_module(value):
                self._note_metric(name, value)
        elif modules.is_module(value):  # such as a loss
            self._note_model(name, value)
        elif trains(type(value)):
            self._note_optimizer(name, value)
        elif is_noted(value) and is_of_the_script(value) and id(value) not in self._whole:
            self._notes.note_table(name, attributes_of(value))

    def _note_model(self, name: str, outer: Any) -> Roots:
        """Note each module in a model; give the objects of the script that these hold."""
        paths = {path: each for path, each in outer.named_modules() if not modules.inside(each)}
        plain, found = modules.plain_names(outer, paths), Roots()
        for path, each in paths.items():
            if id(each) not in self._settings:
                place = f"{name}.{plain[path]}".strip(".")
                self._settings[id(each)] = mode = f"{place}.training"
                self._things[mode] = each
                found += self._note_module(place, each)
        return found

    def _ties(self) -> list[str]:
        """The places of parameters that are also at another place, each with the first one."""
        now = [*map(call, map(itemgetter(1), self._weights))]
        if len({*map(id, now)}) == len(now):  # no calls, since there may be thousands
            return []
        first, found = dict[int, str](), list[str]()
        for (name, _), each in zip(self._weights, now, strict=True):
            if each is not None and (one := first.setdefault(id(each), name)) != name:
                found.append(f"{one} and {name}")
        return found

    def _note_metric(self, name: str, outer: Any) -> None:
        """Note the sums of a metric with a network."""
        for path, each in outer.named_modules():
            self._note_own(f"{name}.{path}".strip("."), each, OF_MODULES)

    def _note_own(self, name: str, thing: Any, hidden: Container[str] = ()) -> None:
        """Note the attributes of a thing; of a class of torch, only those with public names."""
        own, is_torchs = vars(thing), package_of(type(thing)) == "torch"
        for key, value in own.items():
            if key not in hidden and not (is_torchs and key[:1] == "_") and _is_kept(value):
                self._notes.note_key(f"{name}.{key}", value, own, key)
        if is_by_user(type(thing)):
            self._notes.note_table(name, own)

    def _note_module(self, name: str, module: Any) -> Roots:
        notes, own = self._notes, vars(module)
        self._note_own(name, module, OF_MODULES)
        for key in HOOKS:
            notes.note(f"{name}.{key}", len(own[key]), Spot(own[key].__len__))
        for key, value in own["_parameters"].items():
            if value is not None:
                self._settings[id(value)] = place = f"{name}.{key}.requires_grad"
                self._things[place] = value
                at = f"{name}.{key}"
                self._weights.append((at, partial(own["_parameters"].get, key)))
                read = partial(getattr, value, "requires_grad")
                notes.note(place, value.requires_grad, Spot(read, value.requires_grad_))
        for key, value in own["_modules"].items():
            if value is None or next(value.parameters(), None) is None:  # others have a state
                notes.note_key(f"{name}.{key}", value, own["_modules"], key)
        notes.note(f"{name}._modules", len(own["_modules"]), Spot(own["_modules"].__len__))
        is_saved = id(module) in self._known
        for key in own["_non_persistent_buffers_set" if is_saved else "_buffers"]:
            notes.note_key(f"{name}.{key}", own["_buffers"][key], own["_buffers"], key)
        if not is_by_user(type(module)):
            return []
        self._functions.append(module.forward)
        return [(f"{name}.{key}", own[key]) for key in own if key not in OF_MODULES]

    def _note_optimizer(self, name: str, optimizer: Any) -> None:
        if package_of(type(optimizer)) != "torch":
            self._note_own(name, optimizer, OF_OPTIMIZERS)
        for n, group in enumerate(optimizer.param_groups):
            # A group of torchopt is a tuple, and no setting.
            for m, each in enumerate(group["params"] if isinstance(group, dict) else ()):
                if id(each) not in self._known:
                    self._notes.note(f"{name}.param_groups[{n}]['params'][{m}]", each)

    def _not_ours(self, found: Mapping[str, tuple[Any, Any]]) -> set[str]:
        """The names among these of what is saved elsewhere, made anew, or a record of a process."""
        engine = self._state.engine
        owners: list[Any] = [e for e in engine.handlers.values() if hasattr(e, "owned")]
        names = {self._settings.get(id(e)) for own in owners for e in own.owned(self._state)}
        tensors = {n: address_of(v) for n, (v, _) in found.items() if is_plain_tensor(v)}
        saved = addresses_in(engine.objects.values()) if tensors else set()
        names |= {name for name, address in tensors.items() if address in saved}
        for name, (value, _) in found.items():
            if isinstance(value, FILLABLE) and name not in self._records:
                # By all its names; by its own alone too, as an identity may be given out again.
                names_of = [name], [name, *self._names.get(id(value), ())]
                filled = (is_only_filled(each, self._functions) for each in names_of)
                self._records[name] = all(filled)
            if value is GONE or self._records.get(name):
                names.add(name)
        return found.keys() & names

    def _tell_of_drawn(self) -> None:
        """Warn, once for each, of iterators of the script's own from which its functions draw."""
        now = {name: place.read() for name, place in self._notes.places(self._drawn).items()}
        drawn = {n: v for n, v in now.items() if _is_under_way(v, is_noted=self._drawn[n])}
        for name in drawn:
            del self._drawn[name]
        if said := ", ".join(f"{name} ({type(each).__name__})" for name, each in drawn.items()):
            warn(
                f"the run draws from {said}, and no checkpoint holds how far that has come: it "
                "begins anew after a resume, so that a resumed run is another run. Let the data of "
                "the run give these items, too: docs/guides/data.md#several-loaders; or let an "
                "object with state_dict() and load_state_dict() draw them, in engine.objects"
            )

    def _tell_of_unsaved(self) -> None:
        """Warn, once for each object, of changed objects with a state that are not saved."""
        known, changed = _known(self._state), dict[str, Any]()
        for name, (each, before) in [*self._unsaved.items()]:
            if id(each) not in known and _fingerprint(each, known) != before:
                changed[name], _ = self._unsaved.pop(name)
        if changed:
            warn(_message(changed, self._state.engine.objects))


def _called_by(thing: Any) -> list[Any]:
    """The functions that a thing has been given to call, such as a loss or those of a schedule."""
    own = [*attributes_of(thing).values()]
    own += chain.from_iterable(each for each in own if isinstance(each, list))
    own += chain.from_iterable(each.values() for each in own if isinstance(each, dict))
    return [each for each in own if isinstance(each, COMPUTES)]


def _why_lost(name: str, value: Any, was: Any) -> str | None:
    """Why a checkpoint cannot hold a changed value: None if it can, empty if it need not."""
    if (weight := extent_of(value)) is not None:
        count, size = weight
        if count <= MANY and size <= LARGEST:
            return None
        if is_plain_tensor(value) and value.grad_fn is not None:  # of one batch
            return ""
        return f"{size:,} bytes" if size > LARGEST else f"{count:,} values"
    if trains(type(value)) or (was is not GONE and was is not None and _is_kept(value)):
        return f"now another {type(value).__name__}"
    if name.startswith(OF_DATA):  # samples that it has read
        return ""
    held = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list | tuple | deque) or hasattr(value, "_fields"):
        held = [value] if hasattr(value, "_fields") or is_dataclass(value) else []
    kinds = dict.fromkeys(type(each).__name__ for each in held if _has_numbers(each))
    return f"with {' and '.join(kinds)}: use plain tuples or dicts" if kinds else ""


def _has_numbers(thing: Any) -> bool:
    """True for a named tuple, or an object of the script's own, that holds only values."""
    if hasattr(thing, "_fields"):
        return isinstance(thing, tuple) and extent_of([*thing]) is not None
    own = getattr(thing, "__dict__", {}).values()
    return bool(own) and _is_kind_by_user(type(thing)) and extent_of([*own]) is not None


def _is_kept(value: Any) -> bool:
    """True for a value whose change is saved or told of; false for handles, libraries, batches."""
    if isinstance(value, FunctionType):
        return is_by_user(value)
    if trains(type(value)) or extent_of(value) is not None:
        return True
    is_iterator = hasattr(type(value), "__next__")  # an instance may answer by any error
    return not isinstance(value, dict | type) and is_noted(value) and not is_iterator


@once_a_type
def _is_kind_of_iterator(kind: type) -> bool:
    """True for iterators of Python, also generators, and of torch's loaders; not for files."""
    is_pythons = kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")
    return is_pythons or hasattr(kind, "_next_data")


def _is_under_way(value: Any, *, is_noted: bool) -> bool:
    """True for an iterator that has begun and not ended; where nothing tells, if it is noted."""
    if isinstance(value, GeneratorType):
        return value.gi_suspended
    if (given := getattr(value, "_num_yielded", None)) is None:
        return is_noted and _is_kind_of_iterator(type(value))
    with suppress(TypeError):  # of a stream
        return bool(0 < given < len(value))
    return bool(given)


def is_noted(owner: Any) -> bool:
    """True for what holds a script's own values: its functions, classes, objects, dicts."""
    return isinstance(owner, HOLDERS) or _is_kind_by_user(type(owner))


_is_kind_by_user = once_a_type(is_by_user)


def _parts_of(data: object) -> Iterator[tuple[str, Any]]:
    """The parts of loaders and data sets, by the names that torch's own classes have for them."""
    left, seen = [(DATA, data)], set[int]()
    for name, thing in left:
        if id(thing) not in seen and not isinstance(thing, list | tuple | dict):  # batches at hand
            seen.add(id(thing))
            yield name, thing
            own = attributes_of(thing)
            for key in ("dataset", "datasets", "batch_sampler", "sampler", "collate_fn"):
                if isinstance(inner := own.get(key), list | tuple):
                    left += [(f"{name}.{key}[{n}]", each) for n, each in enumerate(inner)]
                elif inner is not None:
                    left.append((f"{name}.{key}", inner))


@once_a_type
def _is_kind_of_leaf(kind: type) -> bool:
    return trains(kind) or is_kind_of_generator(kind)


@once_a_type
def is_stateful(kind: type) -> bool:
    """True for a class whose objects a checkpoint can hold; false for data that gives batches."""
    if not (hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict")):
        return False
    if package_of(kind) == PACKAGE:  # such as a state
        return False
    return modules.is_kind_of_module(kind) or not hasattr(kind, "__iter__")


def script_functions(
    process: Callable[..., Any], signals: Mapping[Any, Any]
) -> list[Callable[..., Any]]:
    """The process function, and functions that a script attached, without Camshaft's handlers."""
    found = [process]
    for signal in signals.values():
        for each in signal.receivers.values():
            is_ours = isinstance(each, Subscription)
            function = each.function if is_ours else each
            if package_of(type(getattr(function, "__self__", None))) != PACKAGE:
                found.append(function)
            if is_ours:
                found += filter(None, map(attrgetter("where"), each.trigger.clauses))
    return found


def _known(state: State[Any, Any]) -> set[int]:
    """The ids of saved things: objects and their parts, handlers, and objects in their memories."""
    objects, handlers = state.engine.objects, state.engine.handlers
    memories = [m for m in state.memory.saved.values() if hasattr(type(m), "saved_objects")]
    kept = [*objects.values(), *(each for memory in memories for each in memory.saved_objects())]
    inside = [each for outer in kept for each in _attributes(outer)]
    others = [each for each in objects.values() if not modules.is_module(each)]
    held = addresses_in(others) if any(map(modules.modules_of, others)) else set[int]()
    found = [*kept, *handlers.values(), *(e for e in inside if not modules.is_module(e))]
    for outer in objects.values():
        for model in modules.modules_of(outer):
            if outer is not model and not held.issuperset(map(address_of, model.parameters())):
                continue  # the state_dict of a script's object may leave out a network
            for module in model.modules():
                found += [module, *module.parameters(recurse=False)]
                found += module.buffers(recurse=False)
    return set(map(id, found))


def addresses_in(things: Iterable[Any]) -> set[int]:
    """The addresses of the tensors in the `state_dict` of these objects."""
    tensors = (each for thing in things for _, each in walk(_state_of(thing)))
    return {address_of(each) for each in tensors if hasattr(each, "untyped_storage")}


def address_of(tensor: Any) -> int:
    """The address of a tensor's numbers; its identity if it has none."""
    try:
        return int(tensor.untyped_storage().data_ptr()) or id(tensor)
    except Exception:  # such as a parameter without a shape, or a shard
        return id(tensor)


def _state_of(thing: Any) -> Any:
    """What an object saves; nothing if it cannot save now."""
    with suppress(Exception):  # a method of the script's own
        return thing.state_dict()
    return None


def _attributes(thing: Any) -> list[Any]:
    """The attributes of a script's own object; for an object of torch, its inner schedulers."""
    if modules.is_module(thing) or package_of(type(thing)) == "torch":
        return list(vars(thing).get("_schedulers", ()))
    return list(attributes_of(thing).values())


def _fingerprint(thing: Any, known: set[int]) -> Any:
    """A few numbers of each tensor that is not saved, and the plain values of a `state_dict`."""
    if id(thing) in known or id(modules.plain_optimizer(thing)) in known:
        return []
    if modules.is_module(thing):
        values = [e for e in (*thing.parameters(), *thing.buffers()) if id(e) not in known]
    else:
        values = [each for _, each in walk(_state_of(thing), plain=True, depth=6)]
    tensors = [sample(each) for each in values if hasattr(each, "untyped_storage")]
    return [each if isinstance(each, PLAIN) else type(each) for each in values], tensors


def _message(changed: Mapping[str, Any], objects: Mapping[str, Any]) -> str:
    kinds = " and ".join(f"{name} ({type(each).__name__})" for name, each in changed.items())
    lines, taken = list[str](), {*objects}
    for name in changed:
        names = re.findall(r"\w+", name)
        word = names[-1] if names[-1] not in taken else "_".join(names)
        lines.append(f'engine.objects["{word}"] = {name}')
        taken.add(word)
    schedules = (name for name, each in changed.items() if hasattr(each, "last_epoch"))
    lines += (f"or engine.add(LRSchedule({n})) in place of {n}.step()" for n in schedules)
    which = "it" if len(changed) == 1 else "them"
    return (
        f"the run changes {kinds}, and no checkpoint holds {which}, so that a resumed run "
        "is another run. Name what a run changes, before it starts: " + "; ".join(lines)
    )


def sample(tensor: Any) -> bytes | None:
    """The bytes of a few numbers of a tensor; None if it has no numbers yet."""
    with suppress(Exception):  # such as a parameter without a shape, or on the device "meta"
        own = modules.local(tensor).detach().reshape(-1)
        some = own[:: max(1, own.numel() // SAMPLES)]
        found: bytes = some.clone().view(sys.modules["torch"].uint8).cpu().numpy().tobytes()
        return found
    return None

"""What a script has made before its run: every value that the run can reach, by its name."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from itertools import chain
from operator import attrgetter
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from .. import modules
from ..modules import HOOKS, OF_STEPS, OF_WEIGHTS
from ..signals import PACKAGE, Subscription, is_by_user, package_of
from ..state import (
    BUFFERS,
    CONTAINERS,
    GONE,
    SettingsNoted,
    Spot,
    State,
    content_of,
    extent_of,
    has_state,
    is_kind_of_generator,
    once_a_type,
)
from .held import is_stateful
from .reached import (
    DATA,
    FEW,
    OF_DATA,
    OPEN,
    PLAIN,
    Reach,
    attributes_of,
    functions_of,
    is_kind_of_the_script,
    is_kind_of_update,
    readers_of,
    search,
    trains,
)
from .unsaved import Unsaved, is_kind_of_iterator

OF_MODULES = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", *HOOKS}
"""Attributes of a module that are noted by what they hold, or are in its `state_dict`."""
OF_OPTIMIZERS = {"state", "param_groups", "defaults"}
HOLDERS = (FunctionType, dict, type, *OPEN)
COMPUTES = (FunctionType, MethodType, BuiltinFunctionType, partial)
ITEMS = "[:]"
"""What the name of all that a list of a class of the script's holds has at its end."""
OTHERS = (complex, frozenset, range, slice, *COMPUTES)
OF_OTHERS = {"decimal", "fractions", "torch.dtype", "torch.Tensor"}
"""Values, and their modules, that no checkpoint holds (sparse tensors): a change is told of."""
OF_TABLES = {"datasets", "pandas", "polars", "pyarrow", "scipy", "tensordict", "xarray"}
"""Packages of tables, of which no checkpoint holds one: a change is told of."""
GIVEN = ("num_threads", "deterministic_debug_mode")
BACKENDS = (
    *("cudnn.benchmark", "cudnn.deterministic", "mkldnn.enabled"),
    *("cuda.matmul.fp32_precision", "cudnn.conv.fp32_precision"),
)
"""Settings of torch for the whole process, by which numbers round."""
Roots = list[tuple[str, Any]]


class Inventory:
    """The settings and small values of all that a run can reach, as its script made them."""

    def __init__(self, state: State[Any, Any]) -> None:
        self._state = state
        self.unsaved: Unsaved = Unsaved(state)
        """Objects with a state that no checkpoint holds."""
        self._held: set[int] = self.unsaved.held
        models = chain.from_iterable(map(modules.modules_of, state.engine.objects.values()))
        weights = chain.from_iterable(model.parameters() for model in models)
        self.parameters: set[int] = {*map(id, weights)} & self._held
        """The ids of parameters that a checkpoint holds; not of buffers, which it may lack."""
        self.notes: SettingsNoted = SettingsNoted(self.parameters)
        own = [e for e in state.engine.objects.values() if hasattr(type(e), "add_param_group")]
        parts = [(e.param_groups, *e.param_groups, getattr(e, "state", e)) for e in own]
        self._of_optimizers: set[int] = {*map(id, chain.from_iterable(parts))}
        """Their groups and states, which they save and load in place."""
        self._whole: set[int] = set()
        """Containers that are noted as one value, and parts of the data that the position saves."""
        self.settings: dict[int, str] = {}
        """By module and parameter: the name of its mode, or of whether it requires a gradient."""
        self._children: set[int] = set()
        self._shared: set[str] = set()
        """The modules that are in another one, and the names of their second places."""
        self.things: dict[str, Any] = {}
        """Modules and parameters by these names, and the script's objects by their first ones."""
        self.made: dict[int, str] = {}
        """By identity: the first names of what the script has made."""
        self.weights: list[tuple[str, Callable[[], Any]]] = []
        """By place: how to read the parameter that is there now."""
        self.functions: list[Any] = []
        """What the run may call."""
        self.names: dict[int, set[str]] = {}
        """By identity: all names of a list, set or dict."""
        self._note_torch()
        roots = [*self._roots()]
        for found in search(roots, trains, self._is_leaf, self.names):
            if id(found.owner) in self._whole:
                self._whole |= {id(found.value)} if type(found.value) in CONTAINERS else set()
            elif found.name:
                self._note(found)

    def _note_torch(self) -> None:
        """Note what torch has for the whole process, and what decides how numbers round."""
        if (torch := sys.modules.get("torch")) is None:
            return
        for key in GIVEN:
            read, write = getattr(torch, f"get_{key}"), getattr(torch, f"set_{key}")
            self.notes.note(f"torch.get_{key}()", read(), Spot(read, write))
        for key in BACKENDS:
            owner, _, name = f"backends.{key}".rpartition(".")
            home = attrgetter(owner)(torch)
            place = Spot(partial(getattr, home, name), partial(setattr, home, name))
            self.notes.note(f"torch.backends.{key}", place.read(), place)

    def _roots(self) -> Iterator[tuple[str, Any]]:
        """Note the engine's modules and optimizers; give the roots of the search for all others."""
        engine, data = self._state.engine, self._state.control.data
        for name, each in engine.objects.items():
            for outer in modules.modules_of(each):
                if id(outer) in self._held:
                    yield from self._note_model(name, outer)
            yield name, each
            self.functions += _called_by(each)
        hooks = [each for each in modules.hooks_of(engine.objects) if is_by_user(each)]
        yield from functions_of(hooks)
        self.functions += [*hooks, *readers_of(data)]
        for name, each in _parts_of(data):
            if has_state(each) and (name == DATA or id(each) in self._held):
                self._whole.add(id(each))
                continue
            is_choice = not hasattr(each, "dataset") or hasattr(each, "indices")
            if type(each).__module__.startswith("torch.utils") and is_choice:
                self._note_own(name, each)  # such as the weights of a sampler
            yield name, each
        for one in filter(None, (engine, vars(engine).get("evaluation"))):
            functions = script_functions(one.process, one.signals)
            self.functions += [*functions, *_called_by(getattr(one.process, "__self__", None))]
            yield from functions_of(functions)
        for name, each in engine.handlers.items():
            self.functions += _called_by(each)
            own = getattr(each, "__dict__", {})
            if is_kind_of_update(type(each)):
                for key in ("accumulate", "optimizer"):
                    self.notes.note_key(f"{name}.{key}", own[key], own, key)
            if is_by_user(type(each)):
                yield name, each
            else:  # its trackers and meters follow the world, and not the run
                for key, one in own.items():
                    if isinstance(one, COMPUTES) or modules.is_kind_of_module(type(one)):
                        yield f"{name}.{key}", one

    def name_of(self, value: Any, place: str) -> str | None:
        """The name of an object that the script has made before the run, and not of mere values.

        None at the second place of a shared module: weights are loaded by the names of all places.
        """
        if place in self._shared:
            return None
        own = self.settings if modules.is_module(value) else self.made
        name = own.get(id(value)) or self.made.get(id(value), "")
        return name if name in self.things and self.things[name] is value else None

    def _is_leaf(self, thing: Any) -> bool:
        """True for what is noted as one value, or warned of."""
        if id(thing) in self._whole or id(thing) in self._of_optimizers or thing in self.unsaved:
            return True
        is_wide = type(thing) in CONTAINERS and len(thing) > FEW
        return is_kind_of_generator(type(thing)) or (is_wide and extent_of(thing) is not None)

    def _note(self, found: Reach) -> None:
        """Note what a search has found: the value of a name, and what the value itself holds."""
        name, value, *_ = found
        if id(value) in self._of_optimizers:
            return
        is_value = type(value) in PLAIN or extent_of(value) is not None
        is_known = type(value) not in PLAIN and id(value) in self.made
        if is_value and type(value) in CONTAINERS:
            self._whole.add(id(value))
        self._note_place(found, is_value=is_value, is_known=is_known)
        if not is_known:
            self.made[id(value)] = name
            if not is_value:
                self.things.setdefault(name, value)
                if isinstance(value, Enum):
                    self.settings[id(value)] = name  # for those in containers
                self._note_inside(name, value)

    def _note_place(self, found: Reach, *, is_value: bool, is_known: bool) -> None:
        """Note which value is at a place, if it is one of the script and not saved with an object.

        A value that is at another place, too, is known from there.
        """
        name, value, owner, holder, key = found
        if holder is None:
            if is_value and type(value) not in PLAIN:
                self.notes.note(name, value)
            return
        is_held = id(owner) in self._held
        is_ours = isinstance(owner, list) or is_kind_noted(type(owner))
        holds_saved = is_stateful(type(owner)) and not is_held  # and has a state of its own
        if (is_value or is_kept(value)) and (is_ours or holds_saved):
            self.notes.note_key(name, value, holder, key, is_known=is_known)
        is_drawn = is_kind_of_iterator(type(value)) and value is not self._state.control.data
        is_iterators = (value is None or is_drawn) and is_ours and not (is_held or is_known)
        if is_iterators and not name.startswith(OF_DATA):
            self.notes.note_key(name, value, holder, key)
            self.unsaved.iterators[name] = is_drawn

    def _note_inside(self, name: str, value: Any) -> None:
        """Note what an object holds, or which names it has so far."""
        kind = type(value)
        if isinstance(value, type):
            if is_by_user(value):
                self.notes.note_table(name, vars(value), value)
            return
        if _has_content(kind) and id(value) not in self._held:
            content = content_of(value)
            self.notes.note(f"{name}{ITEMS}", content.read(), content)
            if "_mask" in attributes_of(value):
                self._note_own(name, value)
        if value in self.unsaved:
            self.unsaved.note(name, value)
            for path, each in value.named_modules() if modules.is_module(value) else ():
                self._note_own(f"{name}.{path}".strip("."), each, OF_MODULES)  # sums of a metric
        elif modules.is_module(value):  # such as a loss
            self._note_model(name, value)
        elif is_kind_of_generator(kind) and is_kind_by_user(kind):
            self._note_own(name, value)  # such as the counter of a `random.Random` of the script
        elif trains(kind):
            self._note_optimizer(name, value)
        elif isinstance(value, dict) or kind is list:
            self.notes.note_table(name, value)
        elif isinstance(value, FunctionType) and is_by_user(value):
            self.notes.note_table(name, vars(value))
        elif is_kind_noted(kind) and is_kind_of_the_script(kind) and id(value) not in self._whole:
            self.notes.note_table(name, attributes_of(value))

    def _note_model(self, name: str, outer: Any) -> Roots:
        """Note each module in a model; give the objects of the script that these hold."""
        paths = {path: each for path, each in outer.named_modules() if not modules.inside(each)}
        plain, found = modules.plain_names(outer, paths), Roots()
        for path, each in paths.items():
            if id(each) not in self.settings:
                place = f"{name}.{plain[path]}".strip(".")
                self.settings[id(each)] = mode = f"{place}.training"
                self.things[mode] = each
                found += self._note_module(place, each)
        return found

    def _note_own(self, name: str, thing: Any, hidden: Container[str] = ()) -> None:
        """Note the attributes of a thing; of a class of torch, only those with public names."""
        own, is_torchs = vars(thing), package_of(type(thing)) == "torch"
        for key, value in own.items():
            if key not in hidden and not (is_torchs and key[:1] == "_") and is_kept(value):
                self.notes.note_key(f"{name}.{key}", value, own, key)
        if is_by_user(type(thing)):
            self.notes.note_table(name, own)

    def _note_module(self, name: str, module: Any) -> Roots:
        notes, own = self.notes, vars(module)
        self._note_own(name, module, OF_MODULES)
        self._note_hooks(name, module, HOOKS)
        notes.note_key(f"{name}.forward", own.get("forward", GONE), own, "forward")
        for key, value in own["_parameters"].items():
            if value is not None:
                self.settings[id(value)] = place = f"{name}.{key}.requires_grad"
                self.things[place] = value
                at = f"{name}.{key}"
                self.weights.append((at, partial(own["_parameters"].get, key)))
                read = partial(getattr, value, "requires_grad")
                notes.note(place, value.requires_grad, Spot(read, value.requires_grad_))
                if package_of(type(value)) == "torch":  # others may keep their numbers there
                    self._note_own(at, value)  # what the script has given to a parameter
                self._note_hooks(at, value, OF_WEIGHTS)
        for key, value in own["_modules"].items():
            is_known = value is not None and id(value) in self._children
            # Others have a state, which one that takes their place has, too.
            if is_known or value is None or next(value.parameters(), None) is None:
                notes.note_key(f"{name}.{key}", value, own["_modules"], key, is_known=is_known)
            self._shared |= {f"{name}.{key}"} if is_known else set()
            self._children.add(id(value))
        notes.note(f"{name}._modules", len(own["_modules"]), Spot(own["_modules"].__len__))
        is_saved = id(module) in self._held
        for key in own["_non_persistent_buffers_set" if is_saved else "_buffers"]:
            notes.note_key(f"{name}.{key}", own["_buffers"][key], own["_buffers"], key)
        places = [(f"{name}.{key}", each) for key, each in own.items() if key not in OF_MODULES]
        if not is_by_user(type(module)):  # what the script has given to it
            return [(place, each) for place, each in places if is_kind_by_user(type(each))]
        self.functions.append(module.forward)
        return places

    def _note_hooks(self, name: str, owner: Any, keys: Iterable[str]) -> None:
        for key in keys:
            hooks = getattr(owner, key, None)
            read = partial(getattr, owner, key, None) if hooks is None else hooks.__len__
            self.notes.note(f"{name}.{key}", None if hooks is None else len(hooks), Spot(read))

    def _note_optimizer(self, name: str, optimizer: Any) -> None:
        self._note_own(name, optimizer, OF_OPTIMIZERS)
        self._note_hooks(name, optimizer, OF_STEPS)
        for n, group in enumerate(optimizer.param_groups):
            # A group of torchopt is a tuple, and no setting.
            for m, each in enumerate(group["params"] if isinstance(group, dict) else ()):
                if id(each) not in self._held:
                    self.notes.note(f"{name}.param_groups[{n}]['params'][{m}]", each)


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


def _called_by(thing: Any) -> list[Any]:
    """The functions that a thing has been given to call, such as a loss or those of a schedule."""
    own = [*attributes_of(thing).values()]
    for each in [*own]:
        own += each if isinstance(each, list) else each.values() if isinstance(each, dict) else ()
    return [each for each in own if isinstance(each, COMPUTES)]


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


def is_kept(value: Any) -> bool:
    """True for a value whose change is saved or told of; false for handles, libraries, batches."""
    kind = type(value)
    names = {kind.__module__, f"{kind.__module__}.{kind.__name__}"}
    is_held = trains(kind) or kind in OTHERS or names & OF_OTHERS or _has_content(kind)
    if is_held or extent_of(value) is not None:
        return True
    is_iterator = hasattr(type(value), "__next__")  # an instance may answer by any error
    is_loader = kind.__module__.startswith("torch.utils.data")
    is_other = not isinstance(value, dict | type) and (is_kind_noted(kind) or is_loader)
    return is_other and not is_iterator


@once_a_type
def is_kind_noted(kind: type) -> bool:
    """True for what holds a script's own values: its functions, classes, objects, dicts."""
    return issubclass(kind, HOLDERS) or is_by_user(kind) or package_of(kind) == "omegaconf"


@once_a_type
def _has_content(kind: type) -> bool:
    """True for bytes, arrays, tensors and tables of all classes, and for a script's containers."""
    if issubclass(kind, dict | list | deque | set):
        return is_kind_by_user(kind)
    if hasattr(kind, "__array_function__") or hasattr(kind, "untyped_storage"):
        return not {"Parameter", "memmap"} & {each.__name__ for each in kind.__mro__}
    return kind in BUFFERS or (hasattr(kind, "__len__") and package_of(kind) in OF_TABLES)


is_kind_by_user: Callable[[type], bool] = once_a_type(is_by_user)

"""What a run has changed of what its script made: saved with the run, put back, or told of."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from .. import modules
from ..explain import warn
from ..modules import HOOKS
from ..signals import Subscription
from ..state import (
    CONTAINERS,
    GONE,
    LARGEST,
    MANY,
    SettingsNoted,
    Spot,
    State,
    assign,
    copy_of,
    devices_of,
    extent_of,
    has_state,
    have_same_content,
    is_by_user,
    is_generator,
    is_noted,
    is_plain_tensor,
    on_devices,
)
from .checked import is_optimizer
from .reached import (
    PLAIN,
    Reach,
    functions_of,
    is_of_the_script,
    is_only_filled,
    is_update,
    readers_of,
    search,
)

logger: logging.Logger = logging.getLogger("camshaft")

SAMPLES = 8
"""How many numbers of each tensor are compared; a write by `.data` does not raise the version."""
DATA = "data"
"""The name of a run's data in expressions."""
OF_DATA = (f"{DATA}.", f"{DATA}[")
"""How the names of its parts begin: a variable of the script may be called `data_size`."""
OF_MODULES = frozenset(
    {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", *HOOKS}
)
"""Attributes of a module that are noted by what they hold, or are in its `state_dict`."""
OF_OPTIMIZERS = frozenset({"state", "param_groups", "defaults"})
Roots = Iterator[tuple[str, Any]]


class Changes:
    """What differs, at a save, from what the script made before the run.

    It notes the settings and small values of all that a run can reach: attributes of modules,
    losses, data sets, samplers, optimizers and a script's own objects, which parameters require a
    gradient, variables of functions. What has changed, and is in no `state_dict`, is saved with
    the run and put back. What cannot be put back, such as a hook, is told of at the save, and so
    are objects with a state of their own that are not among the engine's objects.
    """

    def __init__(self, state: State[Any, Any]) -> None:
        self._state = state
        self._saves = 0
        self._told: set[str] = set()
        self._notes = SettingsNoted()
        self._modules: set[int] = set()
        self._stateful: set[int] = set()
        """Parts of the data with a state of their own: the position holds it."""
        self._containers: set[int] = set()
        self._settings: dict[int, str] = {}
        """By module and parameter: the name of its mode, or of whether it requires a gradient."""
        self._functions: list[Any] = []
        self._records: dict[str, bool] = {}
        """By name: whether functions use this list, set or dict for nothing but to fill it."""
        self._unsaved: dict[str, tuple[Any, list[Any]]] = {}
        """By expression: objects with a state that no checkpoint holds, and its fingerprint."""
        self._known = _known(state)
        for found in search([*self._roots()], self._is_leaf):
            self._note(found)
        earlier: Changes | None = state.control.noted
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
        state.control.noted = self

    def names(self) -> set[str]:
        """The names of all changed values."""
        return self._carried | {name for name, *_ in self._notes.changed()}

    def look(self) -> None:
        """Store the changed values in the state, for a save; warn of what it cannot hold."""
        values: dict[str, Any] = {}
        lost: dict[str, str] = {}
        found = {name: (value, was) for name, value, was in self._notes.changed()}
        for name in self._carried - found.keys():
            if (place := self._notes.place(name)) is not None:
                found[name] = place.read(), GONE
        theirs = self._not_ours(found) if found else set[str]()
        for name, (value, was) in found.items():
            owner, _, key = name.rpartition(".")
            if name in theirs or value is GONE:
                continue
            if key in HOOKS:
                hooks = getattr(getattr(self._notes.place(name), "read", None), "__self__", {})
                if value > was and any(map(is_by_user, hooks.values())):
                    lost[owner] = "a hook more"
            elif (why := _why_lost(value, was)) is None:
                values[name] = copy_of(value)
            elif why:
                lost[name] = why
        self._state.control.changes = {
            "values": values,
            "devices": devices_of(values),
            "started": {name: each for name, each in self._started.items() if name in values},
            "of_pass": self._of_pass,
        }
        if lost:
            self._tell_of_lost(lost)
        self._tell_of_unsaved()

    def put_back(self) -> None:
        """Assign the values that an earlier part of the run, in another process, had changed."""
        if not (saved := self._state.control.changes):  # of a checkpoint that is older
            return
        objects = self._state.engine.objects.values()
        self._saved = on_devices(saved["values"], saved["devices"], objects)
        for name, value in self._saved.items():
            place = self._notes.place(name)
            if place is None:  # no function of this script uses it
                logger.info("%s, which the run had changed, is not in this script", name)
                continue
            if name.startswith(OF_DATA):
                self._made[name] = copy_of(place.read())
            assign(place, value)
        self._of_pass, self._started = dict(saved["of_pass"]), dict(saved["started"])

    def start(self) -> None:
        """After STARTED: put back what a function has set again, as at the run's first start.

        What it sets to another value at each start, such as a time, stays.
        """
        if self._state.is_new:
            found = ((name, value) for name, value, _ in self._notes.changed())
            self._started = {name: copy_of(each) for name, each in found if extent_of(each)}
        for name, value in self._saved.items():
            place = self._notes.place(name)
            if place is not None and (
                name not in self._started or have_same_content(place.read(), self._started[name])
            ):
                assign(place, value)
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
        places = {name: place for name in began if (place := self._notes.place(name)) is not None}
        now = {name: copy_of(place.read()) for name, place in places.items()}
        try:
            for name, place in places.items():
                assign(place, began[name])
            yield
        finally:
            for name, place in places.items():
                assign(place, now[name])

    def _roots(self) -> Roots:
        """Note the engine's modules and optimizers; give the roots of the search for all others."""
        engine = self._state.engine
        for name, each in engine.objects.items():
            for outer in modules.modules_of(each):
                if id(outer) in self._known:
                    yield from self._note_model(name, outer)
            yield name, each
        self._functions += readers_of(self._state.control.data)
        for name, each in _parts_of(self._state.control.data):
            if has_state(each) and (name == DATA or id(each) in self._known):
                self._stateful.add(id(each))
                continue
            if type(each).__module__.startswith("torch.utils") and not hasattr(each, "dataset"):
                self._note_own(name, each)  # such as the weights of a sampler
            yield name, each
        evaluation = vars(engine).get("evaluation")
        for one in filter(None, (engine, evaluation)):
            functions = [*script_functions(one.process, one.signals)]
            self._functions += functions
            yield from functions_of(functions)
        for name, each in engine.handlers.items():
            own = getattr(each, "__dict__", {})
            if is_update(each):
                self._notes.note_key(f"{name}.accumulate", own["accumulate"], own, "accumulate")
            if is_by_user(type(each)):
                yield name, each
            else:  # its trackers and meters follow the world, and not the run
                yield from ((f"{name}.{key}", own[key]) for key in own if _is_computed(own[key]))

    def _is_leaf(self, thing: Any) -> bool:
        """True for what is noted as a whole, or saves itself."""
        if modules.is_module(thing) or is_optimizer(thing) or is_generator(thing):
            return True
        return id(thing) in self._stateful or self._is_unsaved(thing)

    def _is_unsaved(self, thing: Any) -> bool:
        """True for an object with a state that is not saved, nor is anything that it holds."""
        if not is_stateful(thing) or id(thing) in self._known:
            return False
        return not any(id(each) in self._known for each in _attributes(thing))

    def _is_noted(self, owner: Any) -> bool:
        """True for the script's own, and for what has a state and holds what is saved."""
        return is_noted(owner) or (is_stateful(owner) and id(owner) not in self._known)

    def _note(self, found: Reach) -> None:
        """Note what a search has found: the value of a name, and what the value itself holds."""
        name, value, owner, holder, key = found
        if not name:
            return
        if id(owner) in self._containers or id(owner) in self._stateful:
            return  # it is noted with what holds it, or saved
        if type(value) in CONTAINERS and extent_of(value) is not None:
            self._containers.add(id(value))
        if holder is not None and self._is_noted(owner):
            if _is_kept(value):
                self._notes.note_key(name, value, holder, key)
        elif holder is None and extent_of(value) is not None and not isinstance(value, PLAIN):
            self._notes.note(name, value, Spot(partial([value].__getitem__, 0)))
        if isinstance(value, (*PLAIN, type, FunctionType)):
            return
        if modules.is_module(value):
            if id(value) not in self._modules:
                self._note_other(name, value)
        elif self._is_unsaved(value):
            self._unsaved[name] = value, _fingerprint(value, self._known)
        elif is_optimizer(value):
            self._note_optimizer(name, value)
        elif is_noted(value) and is_of_the_script(value) and id(value) not in self._stateful:
            self._notes.note_table(name, vars(value)) if hasattr(value, "__dict__") else None

    def _note_other(self, name: str, module: Any) -> None:
        """Note a module that is not among the engine's objects, such as a loss or a teacher."""
        if any(id(each) not in self._known for each in module.parameters()):
            self._unsaved[name] = module, _fingerprint(module, self._known)
        else:
            list(self._note_model(name, module))

    def _note_model(self, name: str, outer: Any) -> Roots:
        """Note each module in a model; give the objects of the script that these hold."""
        paths = {path: each for path, each in outer.named_modules() if not modules.inside(each)}
        plain = modules.plain_names(outer, paths)
        for path, each in paths.items():
            if id(each) not in self._modules:
                place = f"{name}.{plain[path]}".strip(".")
                self._modules.add(id(each))
                self._settings[id(each)] = f"{place}.training"
                yield from self._note_module(place, each)

    def _note_own(self, name: str, thing: Any, hidden: Container[str] = ()) -> None:
        """Note the attributes of a thing; of a class of torch, only those with public names."""
        own, is_torchs = vars(thing), type(thing).__module__.partition(".")[0] == "torch"
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
                read = partial(getattr, value, "requires_grad")
                notes.note(place, value.requires_grad, Spot(read, value.requires_grad_))
        is_saved = id(module) in self._known
        buffers = own["_non_persistent_buffers_set"] if is_saved else own["_buffers"]
        for key in buffers:
            notes.note_key(f"{name}.{key}", own["_buffers"][key], own["_buffers"], key)
        if is_by_user(type(module)):
            self._functions.append(module.forward)
            yield from ((f"{name}.{key}", own[key]) for key in own if key not in OF_MODULES)

    def _note_optimizer(self, name: str, optimizer: Any) -> None:
        if type(optimizer).__module__.partition(".")[0] != "torch":
            self._note_own(name, optimizer, OF_OPTIMIZERS)
        for number, group in enumerate(optimizer.param_groups):
            for index, each in enumerate(group["params"]):
                if id(each) not in self._known:
                    place = f"{name}.param_groups[{number}]['params'][{index}]"
                    self._notes.note(place, each, Spot(partial([each].__getitem__, 0)))

    def _not_ours(self, found: Mapping[str, tuple[Any, Any]]) -> set[str]:
        """The names among these of what is saved elsewhere, made anew, or a record of a process."""
        names = set[str]()
        for handler in self._state.engine.handlers.values():
            owned: Any = getattr(handler, "owned", None)
            for thing in () if owned is None else owned(self._state):
                names |= {self._settings[id(thing)]} if id(thing) in self._settings else set()
        saved: set[int] | None = None
        for name, (value, _) in found.items():
            if is_plain_tensor(value):
                saved = (
                    addresses_in(self._state.engine.objects.values()) if saved is None else saved
                )
                names |= {name} if address_of(value) in saved else set()
            elif isinstance(value, list | set | dict):
                if name not in self._records:
                    owner, _, key = name.partition(" ")[0].rpartition(".")
                    filled = is_only_filled(key, self._functions, is_attribute=bool(owner))
                    self._records[name] = filled
                names |= {name} if self._records[name] else set()
        return names

    def _tell_of_lost(self, lost: Mapping[str, str]) -> None:
        if new := {name: why for name, why in lost.items() if name not in self._told}:
            self._told |= new.keys()
            said = ", ".join(f"{name} ({why})" for name, why in new.items())
            warn(
                f"the run has changed {said}, which a checkpoint does not hold and a resume does "
                "not put back, so that a resumed run is another run. Let a function of "
                "Events.STARTED make the change again where state.epoch says so; or put an object "
                "whose state_dict() has it into engine.objects"
            )

    def _tell_of_unsaved(self) -> None:
        """Warn, once for each object, of changed objects with a state that are not saved.

        They are compared at the first save, the second, the fourth and so on.
        """
        self._saves += 1
        if not self._unsaved or self._saves & (self._saves - 1):
            return
        known = _known(self._state)
        changed = {
            name: each
            for name, (each, before) in self._unsaved.items()
            if id(each) not in known and not are_equal(_fingerprint(each, known), before)
        }
        if changed:
            for name in changed:
                del self._unsaved[name]
            warn(_message(changed, self._state.engine.objects))


def _why_lost(value: Any, was: Any) -> str | None:
    """Why a checkpoint cannot hold a changed value: None if it can, empty if it need not."""
    if (weight := extent_of(value)) is not None:
        count, size = weight
        if count <= MANY and size <= LARGEST:
            return None
        if is_plain_tensor(value) and value.grad_fn is not None:  # of one batch
            return ""
        return f"{size:,} bytes" if size > LARGEST else f"{count:,} values"
    is_model = modules.is_module(value) or is_optimizer(value)
    if is_model or (was is not GONE and was is not None and _is_kept(value)):
        return f"now another {type(value).__name__}"
    return ""


def _is_computed(value: Any) -> bool:
    """True for a module or a function, such as a loss."""
    return isinstance(value, FunctionType | MethodType | partial) or modules.is_module(value)


def _is_kept(value: Any) -> bool:
    """True for a value whose change is saved or told of; false for handles, libraries, batches."""
    if extent_of(value) is not None:
        return True
    if isinstance(value, FunctionType):
        return is_by_user(value)
    if modules.is_module(value) or is_optimizer(value):
        return True
    return not isinstance(value, dict | type) and is_noted(value) and not hasattr(value, "__next__")


def _parts_of(data: object) -> Roots:
    """The parts of loaders and data sets, by the names that torch's own classes have for them."""
    left, seen = [(DATA, data)], set[int]()
    while left:
        name, thing = left.pop(0)
        if id(thing) not in seen and not isinstance(thing, list | tuple | dict):  # batches at hand
            seen.add(id(thing))
            yield name, thing
            for key in ("dataset", "datasets", "batch_sampler", "sampler", "collate_fn"):
                inner = getattr(thing, "__dict__", {}).get(key)
                if isinstance(inner, list | tuple):
                    left += [(f"{name}.{key}[{n}]", each) for n, each in enumerate(inner)]
                elif inner is not None:
                    left.append((f"{name}.{key}", inner))


def is_stateful(thing: object) -> bool:
    """True if a checkpoint can hold an object, by its class; false for data that gives batches."""
    kind = type(thing)
    if not (hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict")):
        return False
    if kind.__module__.partition(".")[0] == "camshaft":  # such as a state
        return False
    return modules.is_module(thing) or not hasattr(kind, "__iter__")


def script_functions(
    process: Callable[..., Any], signals: Mapping[Any, Any]
) -> Iterator[Callable[..., Any]]:
    """The process function, and functions that a script attached, without Camshaft's handlers."""
    yield process
    for signal in signals.values():
        for each in signal.receivers.values():
            function = each.function if isinstance(each, Subscription) else each
            owner = type(getattr(function, "__self__", None)).__module__
            if owner.partition(".")[0] != "camshaft":
                yield function
            if isinstance(each, Subscription):
                yield from (e.where for e in each.trigger.clauses if e.where is not None)


def _known(state: State[Any, Any]) -> set[int]:
    """The ids of saved things: objects and their parts, handlers, and objects in their memories."""
    objects, handlers = state.engine.objects, state.engine.handlers
    memories = [
        each for each in state.memory.saved.values() if hasattr(type(each), "saved_objects")
    ]
    kept = [each for memory in memories for each in memory.saved_objects()]
    inside = [each for outer in (*objects.values(), *kept) for each in _attributes(outer)]
    held = addresses_in([each for each in objects.values() if not modules.is_module(each)])
    found = [*objects.values(), *handlers.values(), *kept]
    found += [each for each in inside if not modules.is_module(each)]
    for outer in objects.values():
        for model in modules.modules_of(outer):
            own = [*model.parameters()]
            # An object of a script may have a network that its state_dict leaves out.
            if outer is model or all(address_of(each) in held for each in own):
                for module in model.modules():
                    found += [module, *module.parameters(recurse=False)]
                    found += module.buffers(recurse=False)
    return set(map(id, found))


def addresses_in(things: Iterable[Any]) -> set[int]:
    """The addresses of the tensors in the `state_dict` of these objects."""
    tensors = (each for thing in things for each in _values(_state_of(thing), tensors=True))
    return {address_of(each) for each in tensors if hasattr(each, "untyped_storage")}


def address_of(tensor: Any) -> int:
    """The address of a tensor's numbers; its identity if it has none."""
    with suppress(Exception):  # such as a parameter without a shape, or a shard
        return int(tensor.untyped_storage().data_ptr()) or id(tensor)
    return id(tensor)


def _state_of(thing: Any) -> Any:
    """What an object saves; nothing if it cannot save now."""
    with suppress(Exception):  # a method of the script's own
        return thing.state_dict()
    return None


def _attributes(thing: Any) -> list[Any]:
    """The attributes of a script's own object; for an object of torch, its inner schedulers."""
    if modules.is_module(thing) or type(thing).__module__.partition(".")[0] == "torch":
        return list(vars(thing).get("_schedulers", ()))
    return list(getattr(thing, "__dict__", {}).values())


def _fingerprint(thing: Any, known: set[int]) -> list[Any]:
    """A few numbers of each tensor that is not saved, and the plain values of a `state_dict`."""
    if id(thing) in known or id(modules.plain_optimizer(thing)) in known:
        return []
    if modules.is_module(thing):
        own = [*thing.parameters(), *thing.buffers()]
        return [sample(each) for each in own if id(each) not in known]
    return list(_values(_state_of(thing)))


def _values(tree: Any, depth: int = 6, *, tensors: bool = False) -> Iterator[Any]:
    if isinstance(tree, PLAIN):
        yield tree
    elif hasattr(tree, "untyped_storage"):
        yield tree if tensors else sample(tree)
    elif depth and isinstance(tree, Mapping | list | tuple):
        items: Iterable[Any] = tree.values() if isinstance(tree, Mapping) else tree
        yield len(tree)
        for each in items:
            yield from _values(each, depth - 1, tensors=tensors)


def _message(changed: Mapping[str, Any], objects: Mapping[str, Any]) -> str:
    kinds = " and ".join(f"{name} ({type(each).__name__})" for name, each in changed.items())
    lines, taken = "", {*objects}
    for name in changed:
        names = re.findall(r"\w+", name)
        word = names[-1] if names[-1] not in taken else "_".join(names)
        lines += f'{"; " * bool(lines)}engine.objects["{word}"] = {name}'
        taken.add(word)
    for name, each in changed.items():
        if hasattr(each, "last_epoch"):
            lines += f"; or engine.add(LRSchedule({name})) in place of {name}.step()"
    which = "it" if len(changed) == 1 else "them"
    return (
        f"the run changes {kinds}, and no checkpoint holds {which}, so that a resumed run "
        "is another run. Name what a run changes, before it starts: " + lines
    )


def sample(tensor: Any) -> Any:
    """The bytes of a few numbers of a tensor, on its device; None if it has no numbers yet."""
    with suppress(Exception):  # such as a parameter without a shape, or on the device "meta"
        own = modules.local(tensor).detach().reshape(-1)
        some = own[:: max(1, own.numel() // SAMPLES)]
        return some.clone().view(sys.modules["torch"].uint8)
    return None


def are_equal(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """True if these samples of tensors and plain values are the same, in order."""
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(_is_equal(*each) for each in pairs)


def _is_equal(one: Any, other: Any) -> bool:
    if hasattr(one, "untyped_storage") and hasattr(other, "untyped_storage"):
        return one.device == other.device and bool(sys.modules["torch"].equal(one, other))
    return type(one) is type(other) and (one == other or one != one)  # NaN equals NaN

"""The state of every random number generator that a run may draw from."""

from __future__ import annotations

import logging
import random
import struct
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeVar

PLAIN: set[type] = {bool, int, float, str, set, type(None)}

CONTAINERS: set[type[Any]] = {list, tuple, dict, OrderedDict}
"""Where an attribute may hold generators."""
SHORT = 64
"""The most elements of one: a longer one is data."""
SEARCHED = (list, tuple, dict)
"""Where an attribute of data may hold loaders."""
MOST = 500
"""The most objects inside data that are searched."""

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("camshaft")


def once_a_type(function: Callable[[type], T]) -> Callable[[type], T]:
    """Let a function remember its answer for each class: then it is called without Python."""
    return lru_cache(maxsize=1024)(function)


@dataclass(slots=True)
class Rng:
    """A copy of the generator states of Python, and of NumPy and torch if they are loaded.

    The arrays in a state are stored as bytes. The engine does not seed the generators of this
    process; it only restores their states.
    """

    python: Any
    numpy: Any = None
    torch: Any = None
    devices: dict[str, Any] = field(default_factory=dict)
    generators: list[Any] = field(default_factory=list)
    """The states of the data's own generators, in the order of `generators_of`."""
    named: dict[str, Any] = field(default_factory=dict)
    """By name: the states of generators that objects hold and functions draw from."""

    def state_dict(self) -> dict[str, Any]:
        """The states as plain values; `Rng(**saved)` makes an equal `Rng`."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


def capture_generators(data: object = None, named: Mapping[str, Any] | None = None) -> Rng:
    """Copy the states of the generators of Python, NumPy and torch, of the data's, of `named`."""
    rng = Rng(_packed(random.getstate()))
    if numpy := sys.modules.get("numpy"):
        rng.numpy = _plain(numpy.random.get_state(legacy=False))
    if torch := sys.modules.get("torch"):
        rng.torch = _plain(torch.get_rng_state())
        kind, device = accelerator(torch)
        if device is not None and not hasattr(device, "get_rng_state"):
            _warn_of_device(kind)
        elif device is not None:
            # MPS has one device, and not the functions that number them.
            read_all = getattr(device, "get_rng_state_all", None)
            states = read_all() if read_all else [device.get_rng_state()]
            rng.devices[kind] = [*map(_plain, states)]
            rng.devices[f"{kind}_current"] = device.current_device() if read_all else 0
    rng.generators = [get_state(generator) for generator in generators_of(data)]
    rng.named = {name: get_state(generator) for name, generator in (named or {}).items()}
    return rng


def restore_generators(
    rng: Rng, data: object = None, named: Mapping[str, Any] | None = None
) -> None:
    """Restore every generator to its state at the time of `capture_generators`.

    The data's own generators are left alone, with a warning, if their number has changed; so are
    named ones that are new, and those that are gone.
    """
    if named is not None and (odd := sorted(named.keys() ^ rng.named.keys())):
        logger.warning(
            "the random generators %s cannot be put back: only one of this run and the run that "
            "was left has them. Make them before the run, under the same names",
            ", ".join(odd),
        )
    if len(own := generators_of(data)) != len(rng.generators):
        logger.warning(
            "the data's own random generators cannot be put back: it has %d and had %d. Make them "
            "in __init__ rather than when the first sample is read",
            *(len(own), len(rng.generators)),
        )
        own = []
    random.setstate(_unpacked(rng.python))
    if rng.numpy is not None and (numpy := sys.modules.get("numpy")):
        numpy.random.set_state(_array(rng.numpy))
    if rng.torch is not None and (torch := sys.modules.get("torch")):
        torch.set_rng_state(_array(rng.torch))
        for kind in (key for key in rng.devices if not key.endswith("_current")):
            device = getattr(torch, kind, None)
            if device is not None and device.is_available():
                _restore_device(device, rng.devices[kind], rng.devices.get(f"{kind}_current", 0))
    for generator, state in zip(own, rng.generators, strict=False):
        set_state(generator, state)
    for name, generator in (named or {}).items():
        if name in rng.named:
            set_state(generator, rng.named[name])


def accelerator(torch: Any) -> tuple[str, Any]:
    """The kind of device that this process uses beside the CPU, and torch's module for it.

    Such as `"cuda"` and `torch.cuda`; `("cpu", None)` where there is none, or if the process has
    not begun to use it: a worker that was forked never does.
    """
    if torch.cuda.is_initialized():  # torch would name the device of a plugin first
        return "cuda", torch.cuda
    if (place := torch.accelerator.current_accelerator()) is None:
        return "cpu", None
    device = torch.get_device_module(place)
    has_begun = getattr(device, "is_initialized", device.is_available)  # MPS begins by itself
    return (place.type, device) if has_begun() else ("cpu", None)


@lru_cache
def _warn_of_device(kind: str) -> None:
    logger.warning(
        "random numbers that are drawn on the device %r differ after a resume and behind an "
        "evaluation: torch.%s has no get_rng_state",
        *(kind, kind),
    )


def _restore_device(device: Any, saved: Any, current: int) -> None:
    """Restore a device's generators; if the number of devices differs, only the current one's."""
    states = [*map(_array, [saved] if isinstance(saved, bytes) else saved)]  # MPS of before 0.2
    if len(states) == device.device_count() > 1:
        device.set_rng_state_all(states)
    else:  # for example: the process saw all devices of a machine, and now sees only one
        device.set_rng_state(states[current])


def seed_all(seed: int) -> None:
    """Seed the generators that `capture_generators` copies, except those inside data."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed([seed & 0xFFFFFFFF, seed >> 32])
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(seed)
        # Not torch.manual_seed: it would queue work for a device that is not in use yet.
        _, device = accelerator(torch)
        if device is not None:
            getattr(device, "manual_seed_all", device.manual_seed)(seed)


def seed_from(rng: Rng) -> int:
    """A seed computed from the state of torch's generator, without drawing from it."""
    return int.from_bytes(blake2b(rng.torch or b"", digest_size=8).digest(), "little") >> 1


def seed_of(*key: int) -> int:
    """A 64-bit seed computed from these numbers.

    >>> seed_of(1, 2) == seed_of(1, 2), seed_of(1, 2) == seed_of(2, 1)
    (True, False)
    """
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest(), "little")


def seed_of_rank(seed: int, rank: int) -> int:
    """The seed of a rank where each rank draws other numbers; the first rank keeps `seed`."""
    return seed_of(seed, rank) if rank else seed


def generators_of(data: object) -> list[Any]:
    """The generators in a loader, its samplers and, if it has no workers, its data set.

    A loader or a sampler inside a wrapper, a pair or a list of the data is searched too.
    """
    if data is None:
        return []
    found: dict[int, Any] = {}
    for loader in [data] if _is_loader(data) else [data, *parts_inside(data, _has_an_order)]:
        for place in places_in(loader, with_data=not getattr(loader, "num_workers", 0)):
            found |= {id(each): each for each in own_generators(place).values()}
    return list(found.values())


def parts_inside(data: object, wanted: Callable[[Any], bool]) -> list[Any]:
    """The wanted objects in the attributes of data, of what it wraps, and in short containers.

    The search does not go into a wanted object, tensors, modules, or a list of batches.
    """
    found: dict[int, Any] = {}
    seen, left = {id(data)}, deque[Any]([] if type(data) in SEARCHED else [data])
    while left and len(seen) < MOST:
        part = left.popleft()
        if type(part) not in SEARCHED:
            part = getattr(part, "__dict__", {})
        for each in part.values() if isinstance(part, dict) else part:
            if type(each) in PLAIN or id(each) in seen:
                continue
            if type(each) not in SEARCHED and wanted(each):
                found[id(each)] = each
            elif gives_batches(type(each)) and (type(each) not in SEARCHED or len(each) <= SHORT):
                seen.add(id(each))
                left.append(each)
    return [*found.values()]


@once_a_type
def gives_batches(kind: type) -> bool:
    """True for a class that gives batches, indices or samples; no tensor, array or module does."""
    gives = hasattr(kind, "__iter__") or hasattr(kind, "__getitem__")
    return gives and not any(hasattr(kind, each) for each in ("shape", "parameters", "encode"))


def _has_an_order(thing: object) -> bool:
    """True for a loader with a sampler, and for a sampler alone."""
    sampler = getattr(sys.modules.get("torch.utils.data"), "Sampler", ())
    return _is_loader(thing) or isinstance(thing, sampler)


def _is_loader(thing: object) -> bool:
    """True for a loader with a sampler."""
    return "batch_sampler" in getattr(thing, "__dict__", ())


def places_in(loader: object, *, with_data: bool = True) -> list[Any]:
    """A loader, its samplers and, if asked, its data set, without those that it lacks."""
    batches = getattr(loader, "batch_sampler", None)
    places = [loader, getattr(loader, "sampler", None), getattr(batches, "sampler", None), batches]
    if with_data:
        places.append(getattr(loader, "dataset", None))
    return [*{id(each): each for each in places if each is not None}.values()]


def global_generators() -> list[Any]:
    """The generators of Python, NumPy and torch themselves, as objects."""
    found = [vars(random)["_inst"]]
    if torch := sys.modules.get("torch"):
        found.append(torch.default_generator)
    if numpy := sys.modules.get("numpy"):
        found.append(vars(numpy.random.mtrand)["_rand"])
    return found


def own_generators(thing: object) -> dict[str, Any]:
    """By name: an object's generators of torch, NumPy or Python: attributes, or in short ones."""
    found: dict[str, Any] = {}
    for name, value in getattr(thing, "__dict__", {}).items():
        kind = type(value)
        if kind in CONTAINERS:
            if 0 < len(value) <= SHORT:
                for key, each in value.items() if isinstance(value, dict) else enumerate(value):
                    if is_kind_of_generator(type(each)):
                        found[f"{name}[{key!r}]"] = each
        elif is_kind_of_generator(kind):
            found[name] = value
    return found


@once_a_type
def is_kind_of_generator(kind: type) -> bool:
    """True for a class of such generators; of a known class, without a call of Python."""
    # Not isinstance: torch.Generator has an __instancecheck__ in Python, which would be slow.
    if issubclass(kind, random.Random):
        return not issubclass(kind, random.SystemRandom)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return bool(
        (torch and issubclass(kind, torch.Generator))
        or (numpy and issubclass(kind, (numpy.random.Generator, numpy.random.RandomState)))
    )


def get_state(generator: Any) -> Any:
    """The state of a generator of Python, NumPy or torch, as plain values; `set_state` takes it."""
    if isinstance(generator, random.Random):
        return _packed(generator.getstate())
    if hasattr(generator, "bit_generator"):
        return _plain(generator.bit_generator.state)
    state = generator.get_state()
    return _plain(state if hasattr(state, "device") else generator.get_state(legacy=False))


def set_state(generator: Any, state: Any) -> None:
    """Give a generator of Python, NumPy or torch a state that `capture_generators` copied."""
    if isinstance(generator, random.Random):
        generator.setstate(_unpacked(state))
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = _array(state)
    else:
        generator.set_state(_array(state))


def _packed(state: Any) -> tuple[int, bytes, float | None]:
    """A state of Python's generator, with its 625 numbers as bytes."""
    version, numbers, rest = state
    return version, struct.pack(f"<{len(numbers)}I", *numbers), rest


def _unpacked(state: tuple[int, bytes, float | None]) -> tuple[Any, ...]:
    version, content, rest = state
    return version, struct.unpack(f"<{len(content) // 4}I", content), rest


def _plain(state: Any) -> Any:
    """The state with each NumPy array as its dtype and bytes, and each torch tensor as bytes."""
    if isinstance(state, dict):
        return {k: v if type(v) in PLAIN else _plain(v) for k, v in state.items()}
    if hasattr(state, "device") and hasattr(state, "numpy"):
        return state.numpy().tobytes()
    return (state.dtype.str, state.tobytes()) if hasattr(state, "tobytes") else state


def _array(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: _array(value) for name, value in state.items()}
    if isinstance(state, bytes):
        torch = sys.modules["torch"]
        return torch.frombuffer(bytearray(state), dtype=torch.uint8)
    if isinstance(state, tuple):
        return sys.modules["numpy"].frombuffer(state[1], dtype=state[0])
    return state

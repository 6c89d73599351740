"""The state of every random number generator that a run may draw from."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class Rng:
    """A copy of the generators' states, of those libraries that the program has loaded.

    The engine never seeds anything; it only puts back what was.
    """

    python: Any
    numpy: Any = None
    torch: Any = None
    devices: dict[str, Any] = field(default_factory=dict)
    generators: list[Any] = field(default_factory=list)
    """The states of the data's own `torch.Generator`s, in the order of `generators_of`."""

    def state_dict(self) -> dict[str, Any]:
        """The states as plain values and tensors; `Rng(**saved)` makes it again."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


def capture(data: object = None) -> Rng:
    """Copy the state of Python's, NumPy's and torch's generators, and of those inside `data`."""
    rng = Rng(random.getstate())
    if numpy := sys.modules.get("numpy"):
        rng.numpy = numpy.random.get_state(legacy=False)
        if "key" in rng.numpy["state"]:  # as bytes: not every checkpoint or message takes uint32
            rng.numpy["state"]["key"] = rng.numpy["state"]["key"].tobytes()
    if torch := sys.modules.get("torch"):
        rng.torch = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            rng.devices["cuda"] = torch.cuda.get_rng_state_all()
        if torch.backends.mps.is_available():
            rng.devices["mps"] = torch.mps.get_rng_state()
    rng.generators = [generator.get_state() for generator in generators_of(data)]
    return rng


def restore(rng: Rng, data: object = None) -> None:
    """Put every generator back to where `capture` found it.

    Raises:
        ValueError: The data has more or fewer generators than it had.
    """
    if len(own := generators_of(data)) != len(rng.generators):
        raise ValueError(
            f"the data has {len(own)} generators of its own and had {len(rng.generators)} when the "
            "run was left; pass the data that the run was left with"
        )
    random.setstate(rng.python)
    if rng.numpy is not None and (numpy := sys.modules.get("numpy")):
        inner = dict(rng.numpy["state"])
        if "key" in inner:
            inner["key"] = numpy.frombuffer(inner["key"], dtype=numpy.uint32)
        numpy.random.set_state(rng.numpy | {"state": inner})
    if rng.torch is not None and (torch := sys.modules.get("torch")):
        torch.set_rng_state(rng.torch)
        if "cuda" in rng.devices and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(rng.devices["cuda"])
        if "mps" in rng.devices and torch.backends.mps.is_available():
            torch.mps.set_rng_state(rng.devices["mps"])
    for generator, state in zip(own, rng.generators, strict=True):
        generator.set_state(state)


def generators_of(data: object) -> list[Any]:
    """The generators that a loader, its sampler or its batch sampler were given, each once."""
    batch_sampler = getattr(data, "batch_sampler", None)
    parts = [data, getattr(data, "sampler", None), getattr(batch_sampler, "sampler", None)]
    parts.append(batch_sampler)
    found = {id(g): g for part in parts if (g := getattr(part, "generator", None)) is not None}
    return [generator for generator in found.values() if hasattr(generator, "get_state")]

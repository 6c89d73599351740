"""Where a run is in its data: the pass that it reads, and how ranks share the samples."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .generators import Rng

SAVED_AS = {
    "rng_when_left": "left",
    "data_state": "told",
    "data_states": "told_by_ranks",
    "is_complete": "used_up",
}
"""The names in checkpoints of the fields that are called otherwise here."""
UNSAVED = ("data_states", "is_loaded", "iterator", "is_once")


@dataclass(slots=True)
class Dealing:
    """How ranks share the samples of a pass, as far as this is known."""

    ranks: int
    """How many ranks share them."""
    order: str = ""
    """The sampler that draws the order, with its settings; the same on all ranks."""
    batch: int | None = None
    """The samples of a batch over all ranks; None if not known, 0 if batches differ in size."""
    batches_before: int = 0
    """The number of earlier batches of this pass that had another size."""
    samples_before: int = 0
    """The number of samples in these earlier batches, over all ranks."""

    def samples_in(self, batches: int) -> int | None:
        """The number of samples, over all ranks, in the first `batches` batches of the pass."""
        if not self.batch:
            return None
        return self.samples_before + (batches - self.batches_before) * self.batch


@dataclass(slots=True)
class Position:
    """A pass over the data, and the random generators that drew its order."""

    number: int
    """Passes begun so far, 0 before the first; if the data has epochs of its own, the epoch."""
    began: int
    """The run's iteration before the first batch of this pass."""
    rng: Rng
    """The generator states just before the pass began: its order is drawn from them."""
    seed: int
    """The run's seed for the workers' random numbers, the same in all passes."""
    rng_when_left: Rng | None = None
    """The generator states when the run was left or saved; None before."""
    sizes: dict[str, int] = field(default_factory=dict)
    """The batches, samples, ... of this pass, as far as they are known."""
    data_state: Any = None
    """The data's own `state_dict` when the run was left, if it has one."""
    data_states: list[Any] | None = None
    """The same of all ranks, if another number of them has left the run; in no checkpoint."""
    is_complete: bool = False
    """True if this pass was read to its end."""
    at_end: bool = False
    """True if the run was left after the last batch of a pass, before its iterator ended."""
    dealing: Dealing | None = None
    """How ranks share the samples; None before the first pass."""
    mark: str | None = None
    """A checksum of what the run consumed, if a resumed run draws or reads that again."""
    usual: int | None = None
    """The batches of each earlier pass that this run read whole; 0 if they differed."""
    parts: dict[str, Any] = field(default_factory=dict)
    """By name: the states, before the pass began, of objects that the data draws from."""
    is_once: bool = False
    """True if the data is an iterator that cannot begin again: epochs share its only pass."""
    is_loaded: bool = False
    """True until a process that loaded this position has opened the data; in no checkpoint."""
    iterator: object = None
    """The data, if it is an iterator: in this process it is read from where it stands."""

    def state_dict(self) -> dict[str, Any]:
        """The position as plain values and tensors, without the iterator itself."""
        own = [each.name for each in fields(self) if each.name not in UNSAVED]
        saved = {SAVED_AS.get(name, name): getattr(self, name) for name in own}
        return saved | {
            "rng": self.rng.state_dict(),
            "left": None if self.rng_when_left is None else self.rng_when_left.state_dict(),
            "dealing": None if self.dealing is None else asdict(self.dealing),
            "read_from": self.began if self.is_once else None,
        }

    @classmethod
    def of(cls, saved: dict[str, Any]) -> Position:
        """The position that `state_dict` returned."""
        names = {name: key for key, name in SAVED_AS.items()}
        own = {names.get(name, name): value for name, value in saved.items()}
        if (read_from := own.pop("read_from")) is not None:
            own["began"] = read_from  # earlier releases began a pass of an iterator in each epoch
        own["rng"] = Rng(**saved["rng"])
        own["rng_when_left"] = None if saved["left"] is None else Rng(**saved["left"])
        own["dealing"] = None if saved["dealing"] is None else Dealing(**saved["dealing"])
        return cls(**own, is_once=read_from is not None, is_loaded=True)

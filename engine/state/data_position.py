"""Where in the data a run is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .generators import Rng


@dataclass(slots=True)
class Dealing:
    """How ranks share the samples of a pass, as far as it is known."""

    ranks: int
    """How many share them."""
    order: str = ""
    """What draws their order, the same on all ranks."""
    batch: int | None = None
    """The samples of a batch over all ranks; None if it is not known."""
    batches_before: int = 0
    """The batches of this pass that had another number of samples."""
    samples_before: int = 0
    """The samples in these batches, over all ranks."""

    def samples_in(self, batches: int) -> int | None:
        """The samples over all ranks in the first `batches` batches of the pass."""
        if self.batch is None:
            return None
        return self.samples_before + (batches - self.batches_before) * self.batch


@dataclass(slots=True)
class Position:
    """A pass over the data, and the random generators that drew its order."""

    number: int
    """Passes begun so far, 0 before the first; with the data's own epochs, the epoch."""
    began: int
    """The run's iteration before the first batch of this pass."""
    rng: Rng
    """The generators just before the pass began: they draw its order."""
    seed: int
    """The run's seed for what workers draw, the same in all passes."""
    left: Rng | None = None
    """The generators when the run was left or saved; None before."""
    sizes: dict[str, int] = field(default_factory=dict)
    """The batches, samples, ... of this pass, as far as they are known."""
    told: Any = None
    """The data's own `state_dict` when the run was left, if it has one."""
    used_up: bool = False
    """True if this pass was read to its end, and its epoch is still to be completed."""
    at_end: bool = False
    """True if the run was left after the last batch of a pass, whose end was not read yet."""
    read_from: int | None = None
    """The run's iteration before the first batch of an iterator, which all passes read on."""
    dealing: Dealing | None = None
    """How ranks share the samples; None before the first pass."""
    source: object = None
    """The data, if it is an iterator: it cannot begin again and is taken where it stands."""

    def state_dict(self) -> dict[str, Any]:
        """The position as plain values and tensors; of an iterator, how far it was read."""
        saved = {each.name: getattr(self, each.name) for each in fields(self)}
        del saved["source"]
        return saved | {
            "rng": self.rng.state_dict(),
            "left": None if self.left is None else self.left.state_dict(),
            "dealing": None if self.dealing is None else asdict(self.dealing),
        }

    @classmethod
    def of(cls, saved: dict[str, Any]) -> Position:
        """The position that `state_dict` gave."""
        left = None if saved["left"] is None else Rng(**saved["left"])
        dealing = None if saved["dealing"] is None else Dealing(**saved["dealing"])
        made: dict[str, Any] = {"rng": Rng(**saved["rng"]), "left": left, "dealing": dealing}
        return cls(**saved | made)

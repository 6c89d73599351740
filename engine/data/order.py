"""The order of the samples of a pass over all ranks, as far as it is known."""

from __future__ import annotations

from .. import ranks
from ..state import Dealing


class Order:
    """What draws the samples of a pass, and how ranks share them.

    This class is the order of what is read as it comes: nobody knows which samples a rank has.
    """

    name = ""
    """What draws the order, with its settings; the same on all ranks."""
    batch: int | None = None
    """The samples of a batch over all ranks, if it is known."""
    samples: int | None = None
    """The samples of a pass over all ranks, if it is known."""
    splits_anywhere = False
    """True if a pass can go on with batches of another size behind any sample."""
    shares: dict[int, float] | None = None
    """By the number of a batch that is still to come: its weight in a mean over ranks, if it is
    not 1; None where the weights are all 1."""

    def __init__(self, *, fits_any_ranks: bool = False) -> None:
        self.ranks = ranks.data_world_size()
        self.fits_any_ranks = fits_any_ranks
        """True if a position in it may hold for other ranks than those that wrote it."""

    def dealing(self) -> Dealing:
        """How ranks share the samples, as a checkpoint has it."""
        return Dealing(self.ranks, self.name, self.batch)

    def __str__(self) -> str:
        """What ranks compare: the order that they share; empty if it is unknown."""
        if self.batch is None or self.ranks == 1:
            return ""
        return f"{self.name} on {self.ranks} ranks, {self.batch} samples a batch"

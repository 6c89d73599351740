"""Sources of batches, and how each continues in the middle of a pass."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Generic

from .. import ranks
from ..state import Batch, Dealing, Position
from .iterators import rest_of
from .lengths import check_length, length_of


class Source(Generic[Batch]):
    """Data that can be read again and again, also from the middle of a pass.

    This class takes any iterable: a resumed run reads the consumed batches again and drops them.
    """

    def __init__(self, data: Iterable[Batch]) -> None:
        self.data = data

    def open(self, position: Position, consumed: int) -> Iterator[Batch]:
        """Begin the pass of `position` after its first `consumed` batches.

        On entry the random generators are as they were when the pass began; on return they have
        to be as if the consumed batches had been read.

        Raises:
            ValueError: The data has fewer batches.
        """
        batches = iterate(self.data)
        check_length(sum(1 for _ in islice(batches, consumed)), consumed)
        return batches

    def length(self, dealing: Dealing | None = None) -> int | None:
        """The number of batches of a pass, or None if it is unknown.

        Args:
            dealing: Of the pass under way, if it has had batches of another size.
        """
        return length_of(self.data)

    def sizes(self) -> dict[str, int]:
        """The sizes, by name, that must not change between the two parts of a pass."""
        sizes = {} if (batches := length_of(self.data)) is None else {"batches": batches}
        if workers := getattr(self.data, "num_workers", 0):
            sizes["workers"] = workers
        return sizes

    def dealing(self) -> Dealing:
        """How ranks share the samples, as far as it is known."""
        return Dealing(ranks.data_world_size())

    def shares(self) -> dict[int, float] | None:
        """The weights of batches in a mean over ranks, where they may be unlike."""
        return None

    @property
    def goes_on_anywhere(self) -> bool:
        """True if a pass can go on with batches of another size behind any sample."""
        return False

    @property
    def fits_any_ranks(self) -> bool:
        """True if a position in it may hold for other ranks than those that wrote it."""
        return False

    def state(self) -> Any:
        """The data's own state, if it has one."""

    def settle(self, state: Any) -> None:
        """Between two passes, put the data back to this state of its own."""

    def doubts(self) -> list[str]:
        """The reasons why a resumed run may not repeat this one exactly."""
        if not has_persistent_workers(self.data):
            return []
        return [
            "the random numbers that persistent workers draw live on from one epoch to the next, "
            "in the workers alone; if yours draw some, use persistent_workers=False"
        ]

    def close(self) -> None:
        """Release the data at the end of the run."""


class Stateful(Source[Batch]):
    """Data with a state of its own, such as torchdata's `StatefulDataLoader`."""

    data: Any

    def open(self, position: Position, consumed: int) -> Iterator[Batch]:
        """Load the data's state, and begin."""
        if consumed:
            self.data.load_state_dict(position.told)
        return iterate(self.data)

    def state(self) -> Any:
        """The data's own state."""
        return self.data.state_dict()

    @property
    def fits_any_ranks(self) -> bool:
        """True if the data says that its state is the same on all ranks, however many."""
        return bool(getattr(self.data, "fits_any_ranks", False))

    def settle(self, state: Any) -> None:
        """Load the data's state; a loader of torch's kind takes it up in its next iterator."""
        self.data.load_state_dict(state)
        if hasattr(self.data, "_get_iterator"):
            iter(self.data)  # what this draws, a run that was not left has not drawn

    def doubts(self) -> list[str]:
        """Random generators of workers, which the data's own state does not hold."""
        if not getattr(self.data, "num_workers", 0):
            return []
        return [
            f"the random numbers that workers of a {type(self.data).__name__} draw are not in its "
            "state; if yours draw some, use a plain DataLoader"
        ]


def iterate(data: Iterable[Batch]) -> Iterator[Batch]:
    """Begin a pass, drawing as many random numbers with persistent workers as with new ones.

    A loader draws a seed for new workers before the sampler draws its order, and none for those
    that are there already; so a resumed process, whose workers are new, would draw another order.
    """
    if has_persistent_workers(data) and getattr(data, "_iterator", None) is not None:
        torch = sys.modules["torch"]
        torch.empty((), dtype=torch.int64).random_(generator=getattr(data, "generator", None))
    batches = iter(data)
    return rest_of(batches) if batches is data else batches


def has_persistent_workers(data: object) -> bool:
    """True if this is a loader whose workers outlive a pass."""
    is_persistent = getattr(data, "persistent_workers", False) is True  # a mock has all attributes
    return is_persistent and bool(getattr(data, "num_workers", 0))

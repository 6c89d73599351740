"""Where batches come from, and how a pass over them is taken up again."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Generic, Protocol

from ..state import Batch, Position


class Source(Protocol):
    """Data that can be passed over again and again, and entered in the middle."""

    def open(self, position: Position, consumed: int) -> Iterator[Any]:
        """Begin the pass of `position`, behind its first `consumed` batches.

        The generators are as they were when the pass began, and are to be left as if the pass
        had been read up to there.

        Raises:
            ValueError: There are not so many batches.
        """
        ...

    def length(self) -> int | None:
        """The batches of a pass, if that is known."""
        ...

    def sizes(self) -> dict[str, int]:
        """What has to be the same for a pass to be taken up in the middle, by name."""
        ...

    def state(self) -> Any:
        """What the data says itself of where it is, if it does."""

    def settle(self, state: Any) -> None:
        """Between two passes, go to where the data was when it said `state`."""

    def doubts(self) -> list[str]:
        """Why a resumed run may not be the same to the last bit, if so."""
        ...

    def close(self) -> None:
        """Let go of the data: the run is over."""


class Replayed(Generic[Batch]):
    """Any iterable: what was consumed is read again, and thrown away."""

    def __init__(self, data: Iterable[Batch]) -> None:
        """Read from `data`."""
        self.data = data

    def open(self, position: Position, consumed: int) -> Iterator[Batch]:
        """Begin the data and read what was consumed."""
        batches = iterate(self.data)
        found = sum(1 for _ in islice(batches, consumed))
        check_length(found, consumed)
        return batches

    def length(self) -> int | None:
        """The length of the data, if it has one."""
        return length_of(self.data)

    def sizes(self) -> dict[str, int]:
        """The number of batches, if it is known; and of workers, among which a stream is cut."""
        sizes = {} if (batches := length_of(self.data)) is None else {"batches": batches}
        if workers := getattr(self.data, "num_workers", 0):
            sizes["workers"] = workers
        return sizes

    def state(self) -> Any:
        """Nothing: the data is read again."""
        return None

    def settle(self, state: Any) -> None:
        """Nothing is to be done."""

    def doubts(self) -> list[str]:
        """Workers that live on over passes, with generators that nobody can read."""
        if not has_persistent_workers(self.data):
            return []
        return [
            "the random numbers that persistent workers draw live on from one epoch to the next, "
            "in the workers alone; if yours draw some, use persistent_workers=False"
        ]

    def close(self) -> None:
        """Nothing is held."""


class Stateful(Replayed[Batch]):
    """Data that tells and takes its own place, such as torchdata's `StatefulDataLoader`."""

    data: Any

    def open(self, position: Position, consumed: int) -> Iterator[Batch]:
        """Hand the data what it said of its place."""
        if consumed:
            self.data.load_state_dict(position.told)
        return iterate(self.data)

    def state(self) -> Any:
        """What the data says of its place."""
        return self.data.state_dict()

    def settle(self, state: Any) -> None:
        """Hand the data its place, and let it make what it had there: that draws numbers."""
        self.data.load_state_dict(state)
        iter(self.data)

    def doubts(self) -> list[str]:
        """Workers' generators: the data's own state holds none."""
        if not getattr(self.data, "num_workers", 0):
            return []
        return [
            f"the random numbers that workers of a {type(self.data).__name__} draw are not in its "
            "state; if yours draw some, use a plain DataLoader"
        ]


def iterate(data: Iterable[Batch]) -> Iterator[Batch]:
    """Begin a pass; a loader draws as much for it whether its workers are new or persistent.

    A loader draws a seed for new workers before the sampler draws its order, and none for those
    that are there already; so a resumed process, whose workers are new, would draw another order.
    """
    if has_persistent_workers(data) and getattr(data, "_iterator", None) is not None:
        torch = sys.modules["torch"]
        torch.empty((), dtype=torch.int64).random_(generator=getattr(data, "generator", None))
    return iter(data)


def has_persistent_workers(data: object) -> bool:
    """True if this is a loader whose workers outlive a pass."""
    return bool(getattr(data, "persistent_workers", False) and getattr(data, "num_workers", 0))


def length_of(data: object) -> int | None:
    """The number of batches, if the data knows it."""
    try:
        return len(data)  # type: ignore[arg-type]  # the except clause is for those
    except (TypeError, NotImplementedError):
        return None


def check_length(found: int, consumed: int) -> None:
    """Refuse data that ends before the place where the run was left."""
    if found < consumed:
        raise ValueError(
            f"cannot carry on at batch {consumed + 1} of the epoch: the data ended before "
            "that. Pass the data that the run was left with"
        )

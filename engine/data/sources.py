"""Sources of batches: their lengths, and how they continue in the middle of a pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from types import FunctionType
from typing import Any, Generic
from zlib import crc32

from .. import ranks
from ..state import (
    Batch,
    Dealing,
    Position,
    Rng,
    capture_generators,
    generators_of,
    gives_batches,
    parts_inside,
    places_in,
    restore_generators,
    seed_from,
)
from .order import Order
from .trail import END, FIRST, OF_LIST, WHOLE, Trail, checksum_of, lines_of_list, tensor_lines


class Source(Generic[Batch]):
    """Data that can be read again and again, also from the middle of a pass.

    This class takes any iterable: a resumed run reads the consumed batches again and drops them.
    """

    seeds_workers = False
    """True if the workers' random numbers depend on the batch only, not on the workers."""
    has_state = False
    """True for data with a `state_dict` of its own, which then says where a pass goes on."""
    skips = False
    """True if the samples that are skipped are not read again."""
    fills_up = False
    """True if a rank without a further batch takes part in the steps of other ranks by `filling`"""

    def __init__(self, data: Iterable[Batch], order: Order | None = None) -> None:
        self.data: Any = data
        self.given: Any = data
        """What the run was given: the data, or what another library has made of it."""
        self.named: dict[str, Any] = {}
        """The random generators besides the global ones and the data's."""
        self.is_once: bool = isinstance(data, Iterator) and not may_begin_again(data)
        """True for an iterator that cannot begin again: epochs share its only pass."""
        self.epoch_told: tuple[int, list[Any]] | None = None
        """The pass that parts of the data were told of last, and the epochs that they then had."""
        self.order: Any = order or Order()
        self.is_known: bool = type(data) is range
        """True if it is known that nothing is kept from one pass to the next."""
        self.begin: Callable[[], object] | None = None
        """The function to call before a pass, if another library has prepared the loader."""
        self.is_sure: bool = True
        """False while it is not known yet whether `doubts` has all reasons."""
        self.move: Callable[[Batch], Batch] | None = None
        """The function by which that library moves a batch to the device."""
        self.trail: Trail | None = None
        """What is known of the batches that were read; None if this did not see them all."""
        self.draws: bool = False
        """True if the batches that were read again drew random numbers one after the other."""
        self.keeps: bool = False
        """True if some of them drew those of batches behind them, such as a part of the order."""
        self.doubt: str | None = None
        """What a resume at the position of the latest save would draw otherwise, if anything."""
        self.is_ahead_anew: bool = False
        """True if the workers of a resumed pass are ahead by another number of batches."""
        self.listed: str | None = None
        """The checksum of a list's batches when this run began."""
        self.tensors: list[set[str]] = []
        """What the tensors of its batches were then."""

    def open(self, position: Position, consumed: int) -> Iterator[Batch]:
        """Begin the pass of `position` after its first `consumed` batches.

        On entry, the random generators have their states from the beginning of the pass; on return,
        they must have the states from after the consumed batches.

        Raises:
            ValueError: The data has fewer batches.
        """
        if type(self.data) in (list, tuple) and self.listed is None:
            lines = lines_of_list(self.data)
            self.listed = f"{crc32(repr(lines).encode()):08x}"
            self.tensors = tensor_lines(lines[:-1])  # if the list grows, another batch is the last
        return self.read_on(iterate(self.data), consumed)

    def read_on(self, batches: Iterator[Batch], consumed: int) -> Iterator[Batch]:
        """The batches after the consumed ones, which are read and dropped."""
        self.trail = Trail()
        if self.listed is None:
            batches = self.trail.follow(batches)
        states = [capture_generators() for _ in islice(batches, min(consumed, FIRST))]
        found = len(states)
        check_length(found + sum(1 for _ in islice(batches, consumed - found)), consumed)
        # Usually each batch draws, or none. If few do, what they draw is for the batches behind
        # them, such as the order of a loader that is begun anew.
        drew = sum(one != other for one, other in pairwise(states))
        self.draws = 2 * drew >= max(1, found - 1)
        return batches

    def first_batch(self, position: Position) -> Any:
        """Begin the pass of `position`, and give its first batch alone; `END` if it has none."""
        return next(self.open(position, 0), END)

    def beginning(self) -> int | None:
        """A checksum of the first batch, which is read once more; None if that may have an effect.

        The caller restores the random generators.
        """
        if not (self.skips or type(self.data) in (list, tuple)):
            return None
        rng = self.capture()
        try:
            return checksum_of(self.first_batch(Position(1, 0, rng, seed_from(rng))), WHOLE)
        except Exception:  # the pass itself will say so, if it is made
            return None

    def mark(self, consumed: int) -> str | None:
        """A checksum of the first `consumed` batches, after what it is of; None if not known."""
        if self.listed is not None:
            return f"{OF_LIST}::{self.listed}"
        if self.trail is None:
            return None
        self.doubt = self.trail.doubt(consumed)
        own = f"batches of rank {ranks.data_rank()} of {ranks.data_world_size()}"
        return f"{own}:{self.trail.at(consumed)}"

    def length(self, dealing: Dealing | None = None) -> int | None:
        """The number of batches of a pass, or None if it is unknown.

        Args:
            dealing: The dealing of the current pass, if its first batches had another size.
        """
        return length_of(self.data)

    def sizes(self) -> dict[str, int]:
        """The sizes, by name, that must not change between the two parts of a pass."""
        sizes = {} if (batches := length_of(self.data)) is None else {"batches": batches}
        workers = getattr(self.data, "num_workers", None)
        if isinstance(workers, int) and not self.seeds_workers:
            sizes["workers"] = workers
        return sizes

    def state(self) -> Any:
        """The data's own state, if it has one."""

    def settle(self, position: Position, rng: Rng) -> None:
        """Behind a pass, load the data's state if it has one, before the caller restores `rng`."""
        if len(generators_of(self.given)) != len(rng.generators):  # other data than before, which
            rng.generators = self.capture().generators  # keeps the state of its own generators

    def capture(self) -> Rng:
        """The states of the random generators: the global ones, the data's and the run's."""
        return capture_generators(self.given, self.named)

    def restore(self, rng: Rng) -> None:
        """Put the random generators back into the states of `capture`."""
        restore_generators(rng, self.given, self.named)

    def tell(self, number: int) -> None:
        """Tell parts of the data which pass begins, unless they were told and still know it.

        They are samplers and data sets with `set_epoch`, and count from 0.
        """
        parts = parts_by_epoch(self.given)
        if parts and self.epoch_told != (number, [getattr(each, "epoch", None) for each in parts]):
            for part in parts:
                part.set_epoch(number - 1)
            self.epoch_told = number, [getattr(each, "epoch", None) for each in parts]

    def doubts(self) -> list[str]:
        """The reasons why a resumed run may not repeat this one exactly."""
        now = tensor_lines(lines_of_list(self.data)) if self.tensors else []
        if not all(map(set.issubset, self.tensors, now)):
            return [
                "the run writes into the batches of a list, as an operation in place or Mixup of "
                "timm does, and another process begins with the batches that the script makes; "
                "change a copy: batch.clone()"
            ]
        if self.doubt is not None:
            return [self.doubt.format(type(self.given).__name__)]
        if self.seeds_workers or not has_persistent_workers(self.data):
            return []
        return [
            "the random numbers that persistent workers draw live on from one epoch to the next, "
            "in the workers alone; if yours draw some, use persistent_workers=False"
        ]

    def close(self) -> None:
        """Release the data at the end of the run."""


def iterate(data: Iterable[Batch]) -> Iterator[Batch]:
    """Begin a pass, drawing as many random numbers with persistent workers as with new ones.

    For new workers, a loader begins its sampler, draws a seed and begins its sampler once more; for
    existing ones, it begins the sampler alone. So a resumed process, whose workers are new, would
    draw another order.
    """
    if has_persistent_workers(data) and getattr(data, "_iterator", None) is not None:
        torch = sys.modules["torch"]
        iter(getattr(data, "_index_sampler", ()))  # which may draw right here
        torch.empty((), dtype=torch.int64).random_(generator=getattr(data, "generator", None))
    batches = iter(data)
    return rest_of(batches) if batches is data else batches


def has_persistent_workers(data: object) -> bool:
    """True if this is a loader whose workers outlive a pass."""
    is_persistent = getattr(data, "persistent_workers", False) is True  # a mock has all attributes
    return is_persistent and bool(getattr(data, "num_workers", 0))


def rest_of(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The remaining batches of an iterator, wrapped if `iter` could rewind it."""
    return forward_only(batches) if may_begin_again(batches) else batches


def forward_only(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The remaining batches of an iterator, which `iter` does not rewind."""
    while (batch := next(batches, END)) is not END:
        yield batch


def is_stream(data: object) -> bool:
    """True for a loader of an `IterableDataset`, which deals out its samples itself."""
    utils: Any = sys.modules.get("torch.utils.data")
    return utils is not None and isinstance(getattr(data, "dataset", None), utils.IterableDataset)


def may_begin_again(batches: object) -> bool:
    """True for an iterator of a class with an `__iter__` in Python, which may rewind it."""
    is_own = isinstance(getattr(type(batches), "__iter__", None), FunctionType)
    return is_own and isinstance(batches, Iterator)


def length_of(data: object) -> int | None:
    """The number of batches, or None if the data does not know it."""
    try:
        return len(data)  # type: ignore[arg-type]
    except NameError:  # a mistake in `__len__`, whatever the data is
        raise
    except Exception:  # what cannot tell its length raises errors of many kinds
        return None


def shortest(*lengths: int | None) -> int | None:
    """The smallest of these lengths; None means no limit."""
    return min((each for each in lengths if each is not None), default=None)


def check_length(found: int, consumed: int) -> None:
    """Refuse data that ends before the position of the run."""
    if found < consumed:
        raise ValueError(
            f"cannot carry on at batch {consumed + 1} of the epoch: the data ended before "
            "that. Pass the data that the run was left with"
        )


def parts_by_epoch(data: object) -> list[Any]:
    """The samplers and data sets that shuffle by epoch, the data itself included.

    What is inside one of them is left to it.
    """
    places = places_in(data)
    found = {id(place): place for place in places if _is_by_epoch(place)}
    for place in places if id(data) not in found else ():
        if id(place) not in found:
            parts = parts_inside(place, _is_by_epoch)
            found |= {id(each): each for each in parts if gives_batches(type(each))}
    return [*found.values()]


def _is_by_epoch(thing: object) -> bool:
    return callable(getattr(thing, "set_epoch", None))

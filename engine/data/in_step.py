"""Ranks that train together: the same number of batches on each, so that none waits for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

from .. import ranks
from ..state import Batch, State
from .sources import is_stream, may_begin_again
from .trail import END

logger: logging.Logger = logging.getLogger("camshaft")

WAYS = ("stop", "error", "ignore")
APART = (
    "after epoch %d, the ranks have other weights, which DistributedDataParallel keeps alike: they "
    "train apart. It averages no weight that was frozen when it was made: make it with "
    "find_unused_parameters=True, and freeze by Freeze(pattern, until=...). If one rank skips a "
    "step or changes a weight, all have to: if ranks.any_rank(flag): state.skip_step()"
)
ALONE = (
    "after epoch %d, the ranks have other weights, and nothing averages their gradients: each one "
    "trains a model of its own. Write model = ranks.prepare(model) before the optimizer is made; "
    "if it is meant, run inside `with ranks.alone():`"
)


class InStep:
    """Ends each epoch of a run on all ranks after the same number of batches.

    If every rank knows its number of batches, the ranks compare these numbers once an epoch. Else
    they ask one another before each batch. A single process compares nothing.
    """

    def __init__(self, uneven: str = "ignore") -> None:
        """Choose what ranks with different numbers of batches do: see `Engine.run`."""
        if uneven not in WAYS:
            raise ValueError(f"uneven={uneven!r}: needs one of {', '.join(map(repr, WAYS))}")
        self.uneven = uneven
        self.reads_once: bool = False
        """True if a rank's data is an iterator, which may have no batch left."""
        self.cannot_rewind: bool = False
        """True if one of these iterators has no `__iter__` in Python and cannot be rewound."""
        self.are_streams: bool = False
        """True if each rank reads a loader of an `IterableDataset`."""
        self.saves: bool = False  # true while handlers save, for which all ranks wait
        self._waits = 0
        self._asks = False
        self._has_warned = self._has_warned_of_weights = False

    @cached_property
    def is_on(self) -> bool:
        """True if there are other ranks to keep step with."""
        return self.uneven != "ignore" and ranks.world_size() > 1

    def passed(self, state: State[Any, Any]) -> int:
        """A count that grows with iterations, and with waits for the other ranks between them."""
        return state.iteration + self._waits + self.saves

    def agree(self, data: Iterable[Any], length: int | None) -> int | None:
        """The number of batches of an epoch on every rank; None if one rank does not know its own.

        Args:
            data: The data of this rank.
            length: The number of batches of this rank.

        Raises:
            ValueError: The numbers differ, and `uneven` is `"error"`.
        """
        self.reads_once = isinstance(data, Iterator)
        self.cannot_rewind = self.reads_once and not may_begin_again(data)
        if not self.is_on:
            return length
        is_known = length is not None and not self.reads_once
        own = length or 0
        numbers = [
            own,
            -own,
            not is_known,
            self.reads_once,
            self.cannot_rewind,
            not is_stream(data),
        ]
        most, minus_least, *found = ranks.most(numbers)
        self._asks, self.reads_once, self.cannot_rewind, is_other = map(bool, found)
        self.are_streams = not is_other
        if self._asks:
            return None
        if most != -minus_least:
            self._warn(f"the ranks have {-minus_least} to {most} batches an epoch")
        return -minus_least

    def batches(self, batches: Iterator[Batch], state: State[Any, Any]) -> Iterator[Batch]:
        """The batches of an epoch, until the first rank has no more."""
        return self._together(batches, state) if self._asks else batches

    def gathered(self, own: Any) -> list[Any]:
        """What each rank has of something that all tell at the same batch."""
        self._waits += 1
        return ranks.gathered(own)

    def filled(self, batches: Iterator[Any], source: Any, state: State[Any, Any]) -> Iterator[Any]:
        """The batches of a pass, then others that count for nothing, until no rank has more."""
        filling: Any = None
        while True:
            batch = next(batches, END)
            own = 0 if batch is END else source.samples
            self._waits += 1
            total = int(ranks.total(own))
            if not total:
                break
            if batch is END and filling is None:
                filling = source.filling()
            state.share = own * ranks.world_size() / total
            yield filling if batch is END else batch
        state.share = 1.0

    def agree_on_requests(self, state: State[Any, Any]) -> None:
        """Stop or save on all ranks if a handler of one has asked for it, outside of epochs."""
        if not self.is_on:
            return
        self._waits += 1
        size = ranks.world_size()
        # Saves with `by` are asked for on all ranks alike, since all ranks have these handlers.
        wanted = next((reason for reason, by in state.control.saves if by is None), None)
        saves = -size if wanted is None else -ranks.rank()
        end = state.end or 0
        numbers = [size * end - ranks.rank(), -end, saves, wanted is None]
        asked, minus_end, saves, lacks = ranks.most(numbers)
        if saves != -size and lacks:
            reason = ranks.from_rank(-saves, wanted)
            if wanted is None:
                state.save(str(reason))
        if (highest := -(-asked // size)) > -minus_end:  # of the first rank that has it
            own = state.stop_reason, state.is_interrupted
            reason, is_paused = ranks.from_rank(-asked % size, own)
            if end < highest:
                state.stop(str(reason), resumable=is_paused)

    def compare_weights(self, epoch: int, sums: Callable[[], tuple[int, int]]) -> None:
        """Warn once if the ranks' weights differ after epoch 1, 2, 4, 8 or so on.

        Args:
            epoch: The epoch that has ended.
            sums: Gives checksums of weights that are averaged, and of others.
        """
        if self._has_warned_of_weights or epoch & (epoch - 1):
            return
        self._waits += 1
        averaged, others = sums()
        found = ranks.most([averaged, -averaged, others, -others])
        apart = [text for text, n in ((APART, 0), (ALONE, 2)) if found[n] != -found[n + 1]]
        self._has_warned_of_weights = bool(apart)
        for text in apart if ranks.rank() == 0 else ():
            logger.warning(text, epoch)

    def _together(self, batches: Iterator[Batch], state: State[Any, Any]) -> Iterator[Batch]:
        while True:
            batch = next(batches, END)
            self._waits += 1
            have = ranks.count(batch is not END)
            if have < ranks.world_size():
                if have:
                    self._warn(
                        f"{have} of {ranks.world_size()} ranks have a batch "
                        f"{state.iteration_in_epoch + 1} in epoch {state.epoch}, and the others "
                        "have none"
                    )
                    # A resumed run must not read the batch that this rank has dropped.
                    state.control.epoch_stopped = True
                return
            yield batch

    def _warn(self, what: str) -> None:
        advice = "deal samples out evenly, as loader(...) and DistributedSampler do"
        if self.uneven == "error":
            raise ValueError(f"{what}; {advice}, or run(..., uneven='stop') ends epochs together")
        if not self._has_warned and ranks.rank() == 0:
            logger.warning(
                "%s: each epoch ends with the first of them; to use all, %s", what, advice
            )
        self._has_warned = True


class ForwardAlong(InStep):
    """Lets a rank without further batches take part in the forward passes of the other ranks.

    The rank repeats its last batch, and drops the results.
    """

    def __init__(self, forward: Callable[[Any], object]) -> None:
        """Make the forward passes after this rank's own batches by `forward(batch)`."""
        super().__init__()
        self._forward = forward
        self._most: int | None = None

    def agree(self, data: Iterable[Any], length: int | None) -> int | None:
        """The number of batches of this rank; None if it is unknown.

        Raises:
            ValueError: A rank has no batch.
        """
        super().agree(data, length)
        nobody = -ranks.world_size()
        empty = nobody if length != 0 else -ranks.rank()
        most, asks, empty = ranks.most([length or 0, length is None, empty])
        if empty != nobody:
            raise ValueError(
                f"rank {-empty} has no batch to evaluate on, and the forward pass of a "
                "sharded model needs all ranks; give each rank one at least"
            )
        self._most = None if asks else most
        return length

    def batches(self, batches: Iterator[Batch], state: State[Any, Any]) -> Iterator[Batch]:
        """The batches of this rank; after them, it makes forward passes with the other ranks."""
        passes, last = 0, None
        while True:
            batch = next(batches, END)
            passes += 1
            if self._is_over(passes, batch is END):
                return
            if batch is not END:
                last = batch
                yield batch
            else:
                self._forward(last)

    def _is_over(self, passes: int, has_ended: bool) -> bool:
        if self._most is not None:
            return has_ended and passes > self._most
        return not ranks.any_rank(not has_ended)

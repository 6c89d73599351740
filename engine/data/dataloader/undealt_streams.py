"""Streams of which several workers or ranks read the same samples, since nothing deals them out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any
from weakref import WeakSet

from ... import ranks
from ..trail import WHOLE, checksum_of

logger: logging.Logger = logging.getLogger("camshaft")

COMPARED = 4
"""The first batches of a rank that are compared with those of others; all ranks have them."""
_told = WeakSet[Any]()
"""Loaders that have had a warning, as each run makes a new source."""
ADVICE = (
    "Let __iter__ take every n-th sample by torch's get_worker_info(), ranks.data_rank() and "
    "ranks.data_world_size(), as docs/guides/streams.md shows, or use ShardedStream"
)


def told_if_alike(
    batches: Iterator[Any], data: Any, gathered: Callable[[Any], list[Any]] | None
) -> Iterator[Any]:
    """The batches of a stream's first pass, with a warning if workers or ranks read the same ones.

    All batches may be alike, as in a trial with zeros: then nothing is known.

    Args:
        batches: The same batches.
        data: Their loader.
        gathered: Gives what all ranks pass to it; None for one rank.
    """
    return chain(_first_compared(batches, data, gathered), batches)


def _first_compared(batches: Iterator[Any], data: Any, gathered: Any) -> Iterator[Any]:
    sums, kind = list[int](), type(data.dataset).__name__
    workers = getattr(data, "num_workers", 0) or 1
    for number, batch in enumerate(islice(batches, max(COMPARED, 2 * workers)), 1):
        sums.append(checksum_of(batch, WHOLE))
        if number == 2 * workers > 2:  # workers take turns, so each has given two
            first, second = {*sums[:workers]}, {*sums[workers:]}
            if len(first) == len(second) == 1 and first != second and data not in _told:
                _told.add(data)
                logger.warning(
                    "the %d workers of the loader read the same samples: each goes through the "
                    "whole %s, so that an epoch has each sample %d times. %s",
                    *(workers, kind, workers, ADVICE),
                )
        if number == COMPARED and gathered is not None:
            # Ranks that compute one batch together have one number, and read the same.
            rows = {*gathered((ranks.data_rank(), *sums[:COMPARED]))}
            is_alike = len({row[1:] for row in rows}) < len(rows) and len({*sums}) > 1
            if is_alike and ranks.rank() == 0 and data not in _told:
                _told.add(data)
                logger.warning(
                    "ranks read the same samples: each goes through the whole %s, so that an epoch "
                    "has each sample on several ranks. %s",
                    *(kind, ADVICE),
                )
        yield batch

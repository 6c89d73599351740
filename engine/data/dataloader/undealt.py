"""Loaders from which each rank reads all samples, since nothing deals them out, or some twice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sized
from contextlib import suppress
from enum import Enum
from functools import partial
from hashlib import sha256
from itertools import chain, islice
from numbers import Number
from pathlib import PurePath
from typing import Any
from weakref import WeakSet

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from ... import ranks
from ..trail import checksum_of

logger: logging.Logger = logging.getLogger("camshaft")

WHOLE = (SequentialSampler, RandomSampler, SubsetRandomSampler)
"""The samplers that give each sample once a pass, and know nothing of ranks."""
DEEPEST, WIDEST, MOST = 5, 8, 1000
"""How deep a data set is looked into, at how many parts of a list, and how many values in all."""
_warned = WeakSet[Any]()
"""Loaders that have had a warning, as each run makes a new source."""
COMPARED = 4
"""The first batches of a stream on a rank that are compared with those of other ranks."""
ADVICE = (
    "Let __iter__ take every n-th sample by torch's get_worker_info(), ranks.data_rank() and "
    "ranks.data_world_size(), as docs/guides/streams.md shows, or use ShardedStream"
)
LONGEST, LARGEST = 200, 2**12
"""The first characters of a text and the first values of a row that are looked at."""


def undealt_samples(data: Any) -> int:
    """A checksum of the samples of a loader that deals them out to no ranks, the same on each rank.

    Ranks with equal checksums read the same samples. Data that differs between ranks has another
    checksum by its size, its settings, such as a rank or file names, or some of its values. No
    sample is loaded.

    Returns:
        0 for a sampler that may deal the samples out, for a stream, and for other data.
    """
    batches = getattr(data, "batch_sampler", None)
    if batches is not None and type(batches) is not BatchSampler:
        return 0
    sampler: Any = getattr(data if batches is None else batches, "sampler", None)
    if type(sampler) not in WHOLE or getattr(sampler, "replacement", False):
        return 0
    samples, indices = getattr(data, "dataset", None), getattr(sampler, "indices", None)
    if not isinstance(samples, Sized):
        return 0
    text = "\n".join(islice(_told((len(samples), samples, indices)), MOST))
    return int.from_bytes(sha256(text.encode()).digest()[:7]) or 1


def warn_of_repeats(data: Any) -> None:
    """Warn once of a loader whose `DistributedSampler` repeats samples to even out the ranks.

    For a plain `DataLoader`, Camshaft leaves the repeats out.
    """
    batches = getattr(data, "batch_sampler", None)
    sampler: Any = getattr(data if batches is None else batches, "sampler", None)
    if not isinstance(sampler, DistributedSampler) or data in _warned:
        return
    _warned.add(data)
    samples: Any = sampler.dataset
    if (repeated := sampler.total_size - len(samples)) > 0 and ranks.rank() == 0:
        logger.warning(
            "a %s hands out %d of %d samples twice, which its DistributedSampler repeats to even "
            "out %d ranks: they count twice in metrics and gradients. A plain DataLoader, such as "
            "loader(...) makes, counts each once; DistributedSampler(..., drop_last=True) repeats "
            "none",
            *(type(data).__name__, repeated, len(samples), sampler.num_replicas),
        )


def warn_of_undealt(data: Any) -> None:
    """Warn once of a loader whose samples several ranks have in common."""
    if data in _warned:
        return
    _warned.add(data)
    if ranks.rank() == 0:
        logger.warning(
            "the ranks read the same %d samples: this %s does not deal them out, so an epoch takes "
            "each sample on several ranks, and ranks that shuffle alike train on the same batches. "
            "Write loader(dataset, batch_size, training=True), whose batch_size is that of all "
            "ranks, or DataLoader(..., sampler=DistributedSampler(dataset)); if ranks compute one "
            "batch together, as in tensor parallelism, call ranks.data_parallel(mesh) first",
            *(len(data.dataset), type(data).__name__),
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
        sums.append(checksum_of(batch))
        if number == 2 * workers > 2:  # workers take turns, so each has given two
            first, second = {*sums[:workers]}, {*sums[workers:]}
            if len(first) == len(second) == 1 and first != second and data not in _warned:
                _warned.add(data)
                logger.warning(
                    "the %d workers of the loader read the same samples: each goes through the "
                    "whole %s, so that an epoch has each sample %d times. %s",
                    *(workers, kind, workers, ADVICE),
                )
        if number == COMPARED and gathered is not None:
            # Ranks that compute one batch together have one number, and read the same.
            rows = {*gathered((ranks.data_rank(), *sums[:COMPARED]))}
            is_alike = len({row[1:] for row in rows}) < len(rows) and len({*sums}) > 1
            if is_alike and ranks.rank() == 0 and data not in _warned:
                _warned.add(data)
                logger.warning(
                    "ranks read the same samples: each goes through the whole %s, so that an epoch "
                    "has each sample on several ranks. %s",
                    *(kind, ADVICE),
                )
        yield batch


def _told(value: Any, depth: int = 0) -> Iterator[str]:
    """Lines about a value that are the same in each process: no addresses, no generators."""
    inner = partial(_told, depth=depth + 1)
    yield f"{depth} {type(value).__qualname__}"
    if isinstance(value, str | bytes):
        yield f"{len(value)} {value[:LONGEST]!r}"
    elif value is None or isinstance(value, Number | Enum | PurePath):
        yield repr(value)
    elif depth == DEEPEST:
        return
    elif hasattr(value, "tolist") and hasattr(value, "shape"):  # a tensor or an array
        yield f"{value.dtype} {[*value.shape]}"
        with suppress(RuntimeError, TypeError, AttributeError):  # of a sparse one, or without any
            yield from map(_values, _some(value))
    elif isinstance(value, list | tuple | range):
        yield str(len(value))
        for each in _some(value):
            yield from inner(each)
    elif isinstance(value, dict):
        for pair in value.items():
            yield from inner(pair)
    elif hasattr(value, "__qualname__"):
        yield value.__qualname__
    else:
        for name, each in sorted(getattr(value, "__dict__", {}).items()):
            yield name
            yield from inner(each)


def _some(values: Any) -> Any:
    return values[:: max(1, len(values) // WIDEST)][:WIDEST]


def _values(row: Any) -> str:
    """The first values in a row of a tensor or an array."""
    return repr(row.reshape(-1)[:LARGEST].tolist())

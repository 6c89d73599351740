"""Whether ranks that share one order of samples have the same samples."""

from __future__ import annotations

import copy
import logging
from typing import Any, cast
from weakref import WeakSet
from zlib import crc32

import torch
from torch.utils.data import DataLoader, Dataset

from ... import ranks
from ...state import Position, capture_generators, restore_generators, seed_all
from ..trail import WHOLE, checksum_of
from .loader import IndexedLoader
from .workers import is_forked

logger: logging.Logger = logging.getLogger("camshaft")

SOME = 4
"""The samples that are compared."""
PATIENCE = 60
"""Seconds to wait for them."""
_read = WeakSet[Any]()
"""Loaders whose samples were compared: a further run in this process reads none once more."""


class ReadTwice:
    """Checksums of samples, each read twice from the same random numbers."""

    def __init__(self, samples: Any) -> None:
        """Read a shallow copy, so that what the data set counts stays as it is."""
        self.samples: Any = copy.copy(samples)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[int, int]:
        first, second = (self._read(index) for _ in range(2))
        return first, second

    def _read(self, index: int) -> int:
        seed_all(0)
        return checksum_of(self.samples[index], WHOLE)


def shared_samples(data: DataLoader[Any]) -> int:
    """A checksum of some samples, the same on ranks with the same data set.

    They are read by a forked worker if the loader has workers, so that what a data set opens when
    it is first read is not open before its workers begin.

    Returns:
        0 if this is not known: a sample cannot be read, is another one each time, or has a file
        of its own; or workers are not forked. 0 for a loader that an earlier run has compared.
    """
    if data in _read:
        return 0
    _read.add(data)
    rng = capture_generators(data)
    try:
        own = ReadTwice(data.dataset)
        some = range(0, len(own), max(1, len(own) // SOME))[:SOME]
        if not data.num_workers:
            found = [own[index] for index in some]
        elif is_forked(data):
            found = _by_a_worker(data, own, some)
        else:
            return 0
    except Exception:  # the run meets it, if it is an error
        return 0
    finally:
        restore_generators(rng, data)
    if any(first != second for first, second in found):
        return 0
    return crc32(repr(found).encode()) or 1


def _by_a_worker(data: DataLoader[Any], own: ReadTwice, some: range) -> list[tuple[int, int]]:
    reader: DataLoader[Any] = DataLoader(
        cast("Dataset[Any]", own),
        batch_size=None,
        sampler=some,
        num_workers=1,
        timeout=PATIENCE,
        worker_init_fn=data.worker_init_fn,
        multiprocessing_context=data.multiprocessing_context,
        generator=torch.Generator(),
    )
    source = IndexedLoader(reader)  # whose worker leaves signals to this process
    return [*source.open(Position(1, 0, capture_generators(), 0), 0)]


def warn_of_other_samples_on_ranks(data: Any) -> None:
    """Warn that the ranks have other samples, whose shares the sampler deals out."""
    if ranks.rank() == 0:
        logger.warning(
            "the ranks share the samples of one %s, and have not the same ones: the same index "
            "gives other values on another rank. If labels or words are numbered by the order of a "
            "set, that is another one in each process: number them by sorted(...); if files are "
            "listed, sort their names. Ranks with data of their own each need a sampler for it",
            type(data.dataset).__name__,
        )

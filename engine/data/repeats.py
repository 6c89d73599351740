"""Samples that a sampler repeats, and that a loader of one's own hands out with the others."""

from __future__ import annotations

import logging
import sys
from typing import Any
from weakref import WeakSet

from .. import ranks

logger = logging.getLogger("camshaft")

_told = WeakSet[Any]()
"""Loaders of which it was said, since each evaluation reads its own anew."""


def tell_of_repeats(data: Any) -> None:
    """Warn once of a loader whose `DistributedSampler` repeats samples to even out the ranks.

    Of a plain `DataLoader`, these are left out.
    """
    utils: Any = sys.modules.get("torch.utils.data")
    batches = getattr(data, "batch_sampler", None)
    sampler: Any = getattr(data if batches is None else batches, "sampler", None)
    if utils is None or not isinstance(sampler, utils.DistributedSampler) or data in _told:
        return
    _told.add(data)
    samples: Any = sampler.dataset
    if (repeated := sampler.total_size - len(samples)) > 0 and ranks.rank() == 0:
        logger.warning(
            "a %s hands out %d of %d samples twice, which its DistributedSampler repeats to even "
            "out %d ranks: they count twice in metrics and gradients. A plain DataLoader, such as "
            "loader(...) makes, counts each once; DistributedSampler(..., drop_last=True) repeats "
            "none",
            *(type(data).__name__, repeated, len(samples), sampler.num_replicas),
        )

"""Samples in the place of batches."""

from __future__ import annotations

import sys
from typing import Any

from .warn import warn


def refuse_samples(data: object) -> None:
    """Refuse a data set in the place of batches: each of its samples would be taken for a batch.

    A stream may give batches, so it is only a warning there.

    Raises:
        TypeError: The data is a data set with indices, or nothing to iterate over.
    """
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise TypeError(f"the data is {data!r}; it has to give batches: a DataLoader, a list")
    utils: Any = sys.modules.get("torch.utils.data")
    if utils is None or not isinstance(data, utils.Dataset):
        return
    kind = type(data).__name__
    what = (
        f"the data is a {kind}, so each of its items is taken for a batch. If they are samples, "
        "write DataLoader(dataset, batch_size=32); if they are batches, "
        "DataLoader(dataset, batch_size=None)"
    )
    if not isinstance(data, utils.IterableDataset):
        raise TypeError(what)
    warn(what)

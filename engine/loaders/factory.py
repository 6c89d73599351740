"""Loaders made of data sets, with the settings that training and evaluation usually need."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Subset,
    TensorDataset,
)

from .. import ranks

MOST_WORKERS = 8


def loader(
    dataset: Dataset[Any] | Sequence[Any],
    batch_size: int,
    *,
    training: bool,
    seed: int = 0,
    **options: Any,
) -> DataLoader[Any]:
    """Make the `DataLoader` of a data set, for training or for evaluation, on any number of ranks.

    For training samples are shuffled, in another order each epoch. On several ranks each gets its
    share of the samples and of the batch, so that a step takes the same number of samples on any
    number of ranks. The shares of training are even, by samples that are repeated; evaluations
    leave these out again.

    Args:
        dataset: Samples by index.
        batch_size: Samples of a batch, on all ranks together.
        training: True to shuffle.
        seed: Of the order on several ranks. On one, torch's generator draws it.
        options: Of torch's `DataLoader`; they replace what is set here: `num_workers`, by default
            the processors that this rank may use, up to 8, and none for samples in memory; and
            `pin_memory`, by default where there is CUDA.

    Raises:
        TypeError: The data set has no indices or no length, as a stream.
        ValueError: The ranks cannot share the batch, or an option contradicts what is set here.

    >>> train_loader = loader([0.0, 1.0, 2.0, 3.0], 2, training=True)
    >>> len(train_loader), len(loader([0.0, 1.0, 2.0], 2, training=False))
    (2, 2)
    """
    _check(dataset, batch_size, options)
    ours: dict[str, Any] = {
        "batch_size": batch_size // ranks.world_size(),
        "num_workers": _workers(dataset),
        "pin_memory": torch.cuda.is_available(),
    }
    if ranks.world_size() > 1:
        ours["sampler"] = DistributedSampler(
            dataset,  # type: ignore[arg-type]  # a sequence will do
            num_replicas=ranks.world_size(),
            rank=ranks.rank(),
            shuffle=training,
            seed=seed,
        )
    else:
        ours["shuffle"] = training
    return DataLoader(dataset, **ours | options)  # type: ignore[arg-type]


def _check(dataset: object, batch_size: int, options: dict[str, Any]) -> None:
    if isinstance(dataset, IterableDataset):
        raise TypeError(
            f"loader() deals out samples by their indices, and {type(dataset).__name__} is a "
            "stream without indices: write DataLoader(dataset, batch_size), and let its __iter__ "
            "deal samples out by ranks.rank() and torch's get_worker_info()"
        )
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise TypeError(
            f"loader() deals out samples by their indices, and a {type(dataset).__name__} has no "
            "indices or no length: give a Dataset with __getitem__ and __len__, or a list"
        )
    if not {"shuffle", "sampler", "batch_sampler"}.isdisjoint(options):
        raise ValueError(
            "loader() chooses the sampler, by training=: for another one write "
            "DataLoader(dataset, batch_size, sampler=...)"
        )
    if batch_size < 1 or batch_size % ranks.world_size():
        raise ValueError(
            f"batch_size={batch_size}: needs a number of samples that {ranks.world_size()} ranks "
            "can share evenly"
        )


def _workers(dataset: object) -> int:
    """How many workers load the samples; at least one, so that any machine draws alike."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    if isinstance(dataset, TensorDataset | list | tuple | range):
        return 0
    affinity = getattr(os, "sched_getaffinity", None)  # of Linux; it knows containers and Slurm
    processors = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(MOST_WORKERS, processors // ranks.local_world_size()))

"""Loaders made of data sets, with the settings that training and evaluation usually need."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

from ... import ranks
from ...state import whole_seed
from .mixture import Mixture
from .packing import Packed
from .samplers import SharedOrder
from .seeded_samples import inner_of
from .sharded_stream import ShardedStream

MOST_WORKERS = 8


def loader(
    dataset: Dataset[Any] | Sequence[Any] | Mixture | ShardedStream,
    batch_size: int,
    *,
    training: bool,
    seed: int = 0,
    **options: Any,
) -> DataLoader[Any]:
    """Make the `DataLoader` of a data set, for training or for evaluation, on any number of ranks.

    For training, samples are shuffled anew each epoch, in an order that is the same on any number
    of ranks. Each rank gets its share of each batch, so that a step takes the same samples on any
    number of ranks. The sampler repeats samples to make the shares equal; an engine leaves the
    repeats out.

    Args:
        dataset: Samples by index, a `Mixture` of them, for training, or a `ShardedStream`.
        batch_size: Samples of a batch, on all ranks together.
        training: True to shuffle, unless there is a `sampler`.
        seed: The seed of the order, together with the number of the epoch.
        options: Options of torch's `DataLoader`. They replace what is set here: `sampler`, which
            gives the whole order and is dealt out; `num_workers`, by default the processors that
            this rank may use, up to 8, and 0 for samples in memory; and `pin_memory`, by default
            true where there is CUDA.

    Raises:
        TypeError: The data set has no indices or no length, as a stream.
        ValueError: The ranks cannot share the batch, or an option contradicts what is set here.

    >>> train_loader = loader([0.0, 1.0, 2.0, 3.0], 2, training=True)
    >>> len(train_loader), len(loader([0.0, 1.0, 2.0], 2, training=False))
    (2, 2)
    """
    seed = whole_seed(seed)
    if isinstance(dataset, Mixture):
        _check_mixture(training, seed, options)
        dataset, options["sampler"] = dataset.data, dataset
    _check(dataset, batch_size, options)
    ours: dict[str, Any] = {
        "batch_size": batch_size // ranks.data_world_size(),
        "num_workers": _workers(dataset),
        "pin_memory": torch.cuda.is_available(),
    }
    if isinstance(dataset, ShardedStream):
        _check_stream(dataset, training, seed, options)
        return DataLoader(dataset, **ours | options)
    place: dict[str, Any] = {"num_replicas": ranks.data_world_size(), "rank": ranks.data_rank()}
    if (given := options.pop("sampler", None)) is not None:
        sampler: DistributedSampler[Any] = SharedOrder(given, seed=seed, **place)
    else:
        sampler = DistributedSampler(
            dataset,  # type: ignore[arg-type]  # a sequence will do
            **place,
            shuffle=training,
            seed=seed,
            drop_last=bool(options.get("drop_last", False)),
        )
    return DataLoader(dataset, **ours | {"sampler": sampler} | options)  # type: ignore[arg-type]


def _check(dataset: object, batch_size: int, options: dict[str, Any]) -> None:
    is_sharded = isinstance(dataset, ShardedStream)
    if isinstance(dataset, IterableDataset) and not is_sharded:
        raise TypeError(
            f"loader() deals out samples by their indices, and {type(dataset).__name__} is a "
            "stream without indices: give a ShardedStream, or a DataLoader(dataset, batch_size) "
            "whose __iter__ deals out by ranks.data_rank() and torch's get_worker_info()"
        )
    if not is_sharded and not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise TypeError(
            f"loader() deals out samples by their indices, and a {type(dataset).__name__} has no "
            "indices or no length: give a Dataset with __getitem__ and __len__, or a list"
        )
    if not {"shuffle", "batch_sampler"}.isdisjoint(options):
        raise ValueError(
            "loader() shuffles by training=, and deals out a sampler= that gives the whole order; "
            "for a batch sampler write DataLoader(dataset, batch_sampler=...)"
        )
    if hasattr(sampler := options.get("sampler"), "num_replicas"):
        raise ValueError(
            f"loader() deals samples out to the ranks, and so does {type(sampler).__name__}: give "
            "a sampler of the whole order, or write DataLoader(dataset, batch_size, sampler=...)"
        )
    count = ranks.data_world_size()
    if not hasattr(batch_size, "__index__") or batch_size < 1 or batch_size % count:
        shared = f" that {count} ranks can share evenly" if count > 1 else ", from 1"
        raise ValueError(f"batch_size={batch_size!r}: needs a number of samples{shared}")


def _check_mixture(training: bool, seed: int, options: dict[str, Any]) -> None:
    if not training:
        raise ValueError(
            "loader(Mixture, training=False) would leave out samples or count some twice: evaluate "
            "each source by itself, as by one Validate(loader(source, ...), name=...) for each"
        )
    if seed or "sampler" in options:
        raise ValueError(
            "a Mixture draws the order by a seed of its own: write Mixture(..., seed=) in place of "
            "loader(seed=), and no sampler="
        )


def _check_stream(stream: ShardedStream, training: bool, seed: int, options: Any) -> None:
    if seed or "sampler" in options or (training and not stream.shuffle_buffer):
        raise ValueError(
            "a ShardedStream has an order of its own: write ShardedStream(..., seed=1, "
            "shuffle_buffer=1000), and no sampler=; to train in order, DataLoader(stream, size)"
        )


def _workers(dataset: object) -> int:
    """How many workers load the samples; at least one, so that all machines draw alike."""
    dataset = inner_of(dataset)
    dataset = inner_of(dataset.dataset) if isinstance(dataset, Packed) else dataset
    if isinstance(dataset, TensorDataset | torch.Tensor | list | tuple | range):
        return 0
    affinity = getattr(os, "sched_getaffinity", None)  # on Linux; it respects containers and Slurm
    processors = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(MOST_WORKERS, processors // ranks.local_world_size()))

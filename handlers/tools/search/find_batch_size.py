"""The largest batch that fits into the memory of the device."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any

import torch
from torch.nn import Module, SyncBatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from ....engine import Engine, ranks
from ....engine.update import Update
from .trial import Undo, as_before, trial_engine

Make = Callable[[int], Any]
logger: logging.Logger = logging.getLogger("camshaft")

STEPS = 2
"""Steps of a trial: the second one needs activations and the optimizer's state at once."""
SKIPPED = 30
"""Further windows that a gradient scaler may skip before it has found its scale."""
SHARDED = {"FullyShardedDataParallel", "FSDPModule"}


def find_batch_size(
    engine: Engine[Any, Any],
    data: Make | Dataset[Any] | DataLoader[Any],
    *,
    start: int | None = None,
    most: int | None = None,
    multiple_of: int = 1,
) -> int:
    """Make real steps with larger and larger batches; return the largest size that fits.

    The size is doubled until memory runs out, then bisected. The steps are the engine's own, with
    accumulation, precision and the optimizer's state. Handlers that log, save, schedule or
    evaluate are not called. Afterwards everything is as it was, to the last bit.

    On several ranks each one searches for itself, without gradients from the others, and the
    smallest of their sizes is the result of all.

    Args:
        engine: The engine that is going to train. Its modules have to be among its `objects`.
        data: What batches are made of: a loader, from whose data set the first samples are taken
            and collated; a data set; or a function of the size that makes a batch. Where samples
            differ in size, give a function that makes a batch of the largest.
        start: The size to begin with: the loader's by default, otherwise 2 times `multiple_of`.
        most: The largest size to try: the number of samples of a data set, by default.
        multiple_of: The size is a multiple of this.

    Raises:
        TypeError: `data` is none of the three.
        ValueError: A size is no number from 1, or the engine cannot make steps on one rank alone.
        torch.OutOfMemoryError: Not even the smallest size fits.
    """
    make, size, samples = _batches_of(data)
    first, last = _in_units(
        multiple_of,
        start=size if start is None else start,
        most=samples if most is None else most,
    )
    trial = trial_engine(engine)
    together = ranks.on_all_ranks("try batch sizes")
    with together, as_before(engine, data) as go_back, _on_one_rank(engine):

        def fits(units: int) -> bool:
            return _fits(trial, make, units * multiple_of, go_back)

        found = _search(fits, first, last)
    least = min(ranks.gathered(found)) * multiple_of
    if not least:
        raise torch.OutOfMemoryError(f"not even a batch of {multiple_of} fits into the memory")
    return least


def _search(fits: Callable[[int], bool], first: int, last: int | None) -> int:
    """The largest number that fits, by doubling and then by bisection; 0 if none does.

    >>> _search(lambda number: number <= 100, 16, None)
    100
    >>> _search(lambda number: True, 16, 100)
    100
    """
    good, size = 0, first
    while fits(size):
        good = size
        if size == last:
            return good
        size = 2 * size if last is None else min(2 * size, last)
    bad = size
    while bad - good > 1:
        size = (good + bad) // 2
        good, bad = (size, bad) if fits(size) else (good, size)
    return good


def _fits(trial: Engine[Any, Any], make: Make, size: int, go_back: Undo) -> bool:
    """True if steps with a batch of this size do not run out of memory."""
    updates = trial.find(Update)
    window = max((update.accumulate for update in updates), default=1)
    windows = STEPS + SKIPPED * any(update.scaler is not None for update in updates)
    try:
        most = STEPS if updates else None  # a step of the script's own need not be announced
        trial.run([make(size)] * (window * windows), max_epochs=1, max_steps=most)
        fits = True
    except torch.OutOfMemoryError:
        fits = False
    if not fits:  # outside of the except clause, because the error keeps the memory in use
        _free_memory(trial)
    go_back()
    logger.info("a batch of %d samples %s", size, "fits" if fits else "does not fit")
    return fits


def _free_memory(trial: Engine[Any, Any]) -> None:
    """Free the device memory of a failed step."""
    modules = (each for each in trial.objects.values() if isinstance(each, Module))
    for kind in {each.device.type for module in modules for each in module.parameters()}:
        if (empty := getattr(getattr(torch, kind, None), "empty_cache", None)) is not None:
            gc.collect()
            empty()


def _in_units(unit: int, **sizes: int | None) -> tuple[int, int | None]:
    """The size to begin with and the largest one, in multiples of the unit."""
    for name, size in {"multiple_of": unit, **sizes}.items():
        if size is not None and (type(size) is not int or size < 1):
            raise ValueError(f"find_batch_size({name}={size!r}): needs a number of samples, from 1")
    start, most = sizes["start"], sizes["most"]
    if most is not None and most < unit:
        raise ValueError(
            f"find_batch_size: there are {most} samples at the most, and a batch needs a multiple "
            f"of {unit}; pass a smaller multiple_of="
        )
    last = None if most is None else most // unit
    first = 2 if start is None else max(1, start // unit)
    return first if last is None else min(first, last), last


def _batches_of(
    data: Make | Dataset[Any] | DataLoader[Any],
) -> tuple[Make, int | None, int | None]:
    """A function that makes a batch, the loader's batch size, and the number of samples.

    >>> make, size, samples = _batches_of(lambda size: list(range(size)))
    >>> make(3)
    [0, 1, 2]
    """
    if isinstance(data, DataLoader):
        if data.batch_sampler is None:
            raise TypeError(
                "find_batch_size: this loader, with batch_size=None, does not collate samples; "
                "pass a function that makes a batch of a given size"
            )
        samples = data.dataset
        return _first_of(samples, data.collate_fn), data.batch_size, _count(samples)
    if isinstance(data, Dataset) or (hasattr(data, "__getitem__") and not isinstance(data, list)):
        return _first_of(data, default_collate), None, _count(data)
    if callable(data):
        return data, None, None
    raise TypeError(
        f"find_batch_size: got a {type(data).__name__} for the data; it needs a DataLoader, a data "
        "set, or a function that makes a batch of a given size"
    )


def _first_of(dataset: Any, collate: Callable[[list[Any]], Any]) -> Make:
    """Collates the first samples of a data set, each of which is read once."""
    is_stream = isinstance(dataset, IterableDataset)
    unread = iter(dataset) if is_stream else map(dataset.__getitem__, range(len(dataset)))
    read: list[Any] = []

    def make(size: int) -> Any:
        read.extend(islice(unread, max(0, size - len(read))))
        if len(read) < size:
            raise ValueError(
                f"find_batch_size: the data ends after {len(read)} samples, so that no larger "
                f"batch can be tried; pass most={len(read)}"
            )
        return collate(read[:size])

    return make


def _count(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except TypeError:
        return None


@contextmanager
def _on_one_rank(engine: Engine[Any, Any]) -> Generator[None]:
    """Within a `with` block, no step sends anything to other ranks or waits for them.

    Without that, a rank that runs out of memory in the middle of a step would leave the others
    waiting for it.
    """
    with ExitStack() as stack:
        if ranks.is_distributed():
            for parallel in _parallel(engine):
                sends = parallel.require_forward_param_sync
                stack.callback(setattr, parallel, "require_forward_param_sync", sends)
                parallel.require_forward_param_sync = False
                stack.enter_context(parallel.no_sync())
        stack.enter_context(ranks.alone())
        yield


def _parallel(engine: Engine[Any, Any]) -> list[DistributedDataParallel]:
    """The DDP wrappers of an engine's modules; modules hold no reference to them."""
    modules = [each for each in engine.objects.values() if isinstance(each, Module)]
    inner = [each for module in modules for each in module.modules()]
    for each in inner:
        is_sharded = not SHARDED.isdisjoint(kind.__name__ for kind in type(each).__mro__)
        if isinstance(each, SyncBatchNorm) or is_sharded:
            raise ValueError(
                f"find_batch_size: the forward pass of {type(each).__name__} needs all ranks, and "
                "one that runs out of memory would leave the others waiting; look for the size in "
                "one process, with the module as it is without ranks"
            )
    own = set(map(id, inner))
    wrappers = (
        each for each in gc.get_objects() if issubclass(type(each), DistributedDataParallel)
    )
    return [each for each in wrappers if id(each.module) in own]

"""A pass over data whose outputs go to files, and which carries on where it was left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from zlib import crc32

from torch import Tensor
from torch.nn import Module

from ...engine import Engine, ranks
from ...engine.data import source_of
from ...engine.modules import fully_sharded
from ..checkpoint import checksum, sweep_run
from ..files import locked, make_directory_inside
from .predictions import Predictions
from .shards import Shards


def predict(
    engine: Engine[Any, Any],
    data: Iterable[Any],
    directory: str | Path,
    *,
    select: Callable[[Any], Any] | None = None,
    weights: str | Mapping[str, str] | None = None,
    seed: int | None = None,
    interleaved: bool = True,
    megabytes: float = 64,
    seconds: float = 60,
) -> Predictions:
    """Evaluate `data` and write what the engine makes of each sample; return a reader of it.

    Each rank writes shards to the directory as it goes, and holds no more than one of them in
    memory. A shard is durable before the pass goes on. Call it again after a kill: the pass carries
    on behind the last shard, with the same random numbers. Where it is complete, it computes
    nothing. Handlers of evaluations work as in `Engine.evaluate`; take off a `Collect`, which keeps
    everything.

    Args:
        engine: Evaluates, as by `Engine.evaluate`.
        data: The batches, the same at each call.
        directory: Where the shards are: one directory for each data set, model and `select`.
        select: Chooses what to write from the engine's output, with one row for each sample; by
            default its prediction and target, or all of it if it has no such parts.
        weights: The object whose weights to use, such as `"ema"`.
        seed: The seed of the random numbers that the pass draws.
        interleaved: True if rank r of n has the samples r, r + n, r + 2n, ..., as by
            `DistributedSampler`; False if each rank has one block.
        megabytes: The size of a shard.
        seconds: After so much time a shard is written though it is smaller.

    Raises:
        BlockingIOError: Another process writes there.
        FileNotFoundError: The directory was removed or moved during the pass.
        ValueError: The directory holds predictions of other weights, other data or another number
            of ranks; or several ranks hold the model together.

    >>> import torch
    >>> from tempfile import mkdtemp
    >>> engine = Engine(lambda state, batch: {"double": 2 * batch})
    >>> found = predict(engine, [torch.tensor([1, 2]), torch.tensor([3])], mkdtemp())
    >>> len(found), [sample["double"].item() for sample in found]
    (3, [2, 4, 6])
    """
    if fully_sharded(engine.objects.values()) or ranks.data_group() is not None:
        raise ValueError(
            "predict: the ranks hold the model together, and each would have to carry on from the "
            "same batch; gather outputs by Collect, or Export the model and predict with a whole "
            "one on each rank"
        )
    with engine.using(weights or {}):
        weights_sum = _checksum(engine.objects)
    found, count = Predictions(directory), ranks.world_size()
    place = found.part(ranks.rank(), count)
    with ExitStack() as stack:
        with ranks.on_all_ranks(f"begin to write predictions to {directory}"):
            if others := found.worlds() - {count}:  # before this one has a directory of its own
                raise ValueError(
                    f"{directory} holds predictions of {sorted(others)} ranks, and not of {count}. "
                    "Start as many, choose another directory, or remove this one to begin anew"
                )
            make_directory_inside(found.directory, place.name)
            is_held = stack.enter_context(locked(place))
            sweep_run(place)
            most = int(megabytes * 1e6)
            shards = Shards(place, is_held, select, interleaved, seconds, most, weights_sum)
            with closing(source_of(data, each_once=True)) as source:
                rng = source.capture()
                try:
                    shards.check(source.sizes(), source.beginning)
                finally:
                    source.restore(rng)
        if not shards.are_complete:
            for event, function in shards.handlers.items():
                stack.enter_context(engine.evaluation.signal(event).connected_to(function))
            engine.evaluate(data, weights=weights, seed=seed, name="predict")
    ranks.gathered(None)  # wait until all ranks have written theirs
    return found


def _checksum(objects: Mapping[str, Any]) -> str:
    """A checksum of all weights, which is the same on any device."""
    modules = [each for each in objects.values() if isinstance(each, Module)]
    tensors = [tensor for module in modules for tensor in module.state_dict().values()]
    sums = [checksum(each) for each in tensors if isinstance(each, Tensor)]
    return f"{crc32(repr([int(each) for each in sums]).encode()):08x}"
